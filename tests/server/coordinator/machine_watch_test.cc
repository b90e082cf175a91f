#include "server/coordinator/machine_watch.h"

#include <gtest/gtest.h>

#include "tests/server/coordinator/machine_harness.h"

namespace kaon::coordinator {
namespace {

class MachineWatchTest : public ::testing::Test {
 protected:
  bool Serving() {
    watch_.Look(harness_.machine());
    return health_.serving();
  }

  MachineHarness harness_;
  monitor::ServiceHealth health_{"kaon.v1.Coordinator"};
  MachineWatch watch_{health_};
};

TEST_F(MachineWatchTest, AStoppedJobDoesNotServe) {
  EXPECT_TRUE(Serving());
  harness_.Train();
  EXPECT_TRUE(Serving());
  v1::ShardState lost;
  lost.set_data_loss("its disk is gone");
  harness_.State(1, lost);
  EXPECT_FALSE(Serving());
}

TEST_F(MachineWatchTest, AnotherHoldersJobIsItsAffair) {
  harness_.Train();
  v1::ShardState lost;
  lost.set_data_loss("its disk is gone");
  harness_.State(1, lost);
  ASSERT_FALSE(Serving());
  v1::Ballot higher = harness_.ballot();
  higher.set_counter(higher.counter() + 1);
  harness_.Refuse(0, v1::REFUSAL_REASON_OLD_BALLOT, "", higher, "coordinator-b:1");
  EXPECT_TRUE(Serving());
}

}  // namespace
}  // namespace kaon::coordinator
