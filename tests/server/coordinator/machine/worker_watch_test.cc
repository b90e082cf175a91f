#include "server/coordinator/machine/worker_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kaon::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WorkerWatchTest : public testing::Test {
 protected:
  std::vector<uint32_t> Tick(const std::vector<uint32_t>& absent,
                             absl::Duration passed = absl::Milliseconds(100)) {
    now_ += passed;
    return watch_.Tick(now_, absent, absl::Milliseconds(300));
  }

  absl::Time now_ = absl::UnixEpoch();
  WorkerWatch watch_{absl::Milliseconds(200)};
};

TEST_F(WorkerWatchTest, NamesWhoeverIsAbsentForAsLongAsIsWaited) {
  EXPECT_THAT(Tick({1}), IsEmpty());
  EXPECT_THAT(Tick({1, 2}), IsEmpty());
  EXPECT_THAT(Tick({1, 2}), IsEmpty());
  EXPECT_THAT(Tick({1, 2}), ElementsAre(1));
  EXPECT_THAT(Tick({1, 2}), ElementsAre(1, 2));
}

TEST_F(WorkerWatchTest, WhoeverIsThereOrCallsBeginsAnew) {
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Tick({1, 2}), IsEmpty());
  watch_.Heard(2);
  EXPECT_EQ(watch_.calls(2), 1u);
  EXPECT_EQ(watch_.calls(1), 0u);
  EXPECT_THAT(Tick({2}), IsEmpty());
  for (int i = 0; i < 2; ++i) EXPECT_THAT(Tick({1, 2}), IsEmpty());
  EXPECT_THAT(Tick({1, 2}), ElementsAre(2));
  EXPECT_THAT(Tick({1, 2}), ElementsAre(1, 2));
}

// T8: a coordinator that was frozen must not blame the workers for it.
TEST_F(WorkerWatchTest, TimeInWhichNobodyTickedCountsAsOneTick) {
  EXPECT_THAT(Tick({1}), IsEmpty());
  EXPECT_THAT(Tick({1}, absl::Hours(1)), IsEmpty());
  EXPECT_THAT(Tick({1}), ElementsAre(1));
}

}  // namespace
}  // namespace kaon::coordinator
