#include "server/coordinator/service/costly_calls.h"

#include <gtest/gtest.h>

#include <string>

namespace kaon::coordinator {
namespace {

class CostlyCallsTest : public ::testing::Test {
 protected:
  bool Run(const std::string& caller, absl::Duration cost) {
    if (calls_.Wait(caller, now_) > absl::ZeroDuration()) return false;
    now_ += cost;
    calls_.Charge(caller, cost, now_);
    return true;
  }

  CostlyCalls calls_{{.burst = absl::Milliseconds(500), .share = 0.05}};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(CostlyCallsTest, ACallerGetsABurstAndThenItsShare) {
  absl::Duration used;
  // It tries each millisecond.
  for (; now_ < absl::UnixEpoch() + absl::Seconds(100); now_ += absl::Milliseconds(1)) {
    if (Run("attacker", absl::Milliseconds(40))) used += absl::Milliseconds(40);
  }
  EXPECT_GT(used, absl::Seconds(5));
  EXPECT_LT(used, absl::Seconds(5.6));
  const absl::Duration wait = calls_.Wait("attacker", now_);
  EXPECT_GT(wait, absl::ZeroDuration());
  EXPECT_LE(wait, absl::Milliseconds(40) / 0.05);
  now_ += wait;
  EXPECT_EQ(calls_.Wait("attacker", now_), absl::ZeroDuration());
  // Others are not affected.
  EXPECT_TRUE(Run("honest", absl::Milliseconds(40)));
}

TEST_F(CostlyCallsTest, ManyAddressesOfAnAttackerHaveABoundTogether) {
  absl::Duration used;
  for (int i = 0; now_ < absl::UnixEpoch() + absl::Seconds(100); ++i) {
    if (Run(std::to_string(i % 1000), absl::Milliseconds(40))) used += absl::Milliseconds(40);
    now_ += absl::Milliseconds(1);
  }
  // A quarter of the time, and the burst.
  EXPECT_LT(used, absl::Seconds(28));
}

TEST_F(CostlyCallsTest, ALongRequestDoesNotKeepItsCallerAwayForLonger) {
  EXPECT_TRUE(Run("first", absl::Seconds(10)));
  const absl::Duration wait = calls_.Wait("first", now_);
  EXPECT_GT(wait, absl::Seconds(5));
  EXPECT_LE(wait, absl::Seconds(11));
}

TEST_F(CostlyCallsTest, ForgetsCallersThatHaveTheirBurstAgain) {
  for (int i = 0; i < 100; ++i) Run(std::to_string(i), absl::Milliseconds(40));
  now_ += absl::Hours(1);
  EXPECT_TRUE(Run("last", absl::Milliseconds(1)));
  EXPECT_EQ(calls_.num_callers(), 1u);
}

}  // namespace
}  // namespace kaon::coordinator
