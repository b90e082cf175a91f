#include "client/backoff.h"

#include <gtest/gtest.h>

namespace kaon::client {
namespace {

TEST(BackoffTest, DoublesUpToItsLimitWithinTheJitter) {
  Backoff backoff(absl::Milliseconds(10), absl::Milliseconds(50), 1);
  const int expected_ms[] = {10, 20, 40, 50, 50};
  for (int failures = 0; failures < 5; ++failures) {
    const absl::Duration delay = backoff.Delay(failures);
    EXPECT_GE(delay, absl::Milliseconds(expected_ms[failures]) / 2) << failures;
    EXPECT_LT(delay, absl::Milliseconds(expected_ms[failures])) << failures;
  }
}

TEST(BackoffTest, AnyNumberOfFailuresStaysAtTheLimit) {
  Backoff backoff(absl::Milliseconds(10), absl::Seconds(2), 1);
  EXPECT_LT(backoff.Delay(2147483647), absl::Seconds(2));
}

TEST(BackoffTest, SeedDecidesTheDelays) {
  Backoff one(absl::Seconds(1), absl::Seconds(1), 7);
  Backoff same(absl::Seconds(1), absl::Seconds(1), 7);
  Backoff other(absl::Seconds(1), absl::Seconds(1), 8);
  const absl::Duration delay = one.Delay(0);
  EXPECT_EQ(delay, same.Delay(0));
  EXPECT_NE(delay, other.Delay(0));
}

}  // namespace
}  // namespace kaon::client
