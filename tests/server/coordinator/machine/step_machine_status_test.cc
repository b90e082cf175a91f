// Every reason that keeps a job from going on is in the phase, which `kaonctl status` prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/coordinator/machine/machine_harness.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusTest, NamesTheShardsThatRefuseToTalkToThisCoordinator) {
  MachineHarness harness;
  harness.machine().OnShardDisconnected(1, absl::FailedPreconditionError("this is shard 0 of 2"));
  EXPECT_EQ(harness.phase(),
            "standing by: no holder known; shard 0: not connected; shard 1: FAILED_PRECONDITION: "
            "this is shard 0 of 2");
  EXPECT_THAT(harness.machine().Snapshot().shard_problems,
              ElementsAre("not connected", "FAILED_PRECONDITION: this is shard 0 of 2"));
  harness.Hold();
  EXPECT_EQ(harness.phase(), "idle: no job is registered");
}

TEST(StatusTest, SaysWhyAPlanIsRefusedAgainAndAgain) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  const v1::StepPlan plan = *harness.SentPlan(0);
  harness.Vote(0, plan);
  harness.RefusePlan(1, "a rollback is needed", plan, std::nullopt, v1::REFUSAL_REASON_STALE_PLAN);
  EXPECT_THAT(harness.phase(), EndsWith("waiting for shard 1; shard 1: refuses: a rollback is "
                                        "needed"));
  // It does not any more.
  harness.Vote(1, plan);
  EXPECT_THAT(harness.phase(), Not(HasSubstr("refuses")));
}

TEST(StatusTest, SaysWhichShardIsSilent) {
  MachineHarness harness;
  harness.Train();
  for (int i = 0; i < 100; ++i) harness.Tick();
  EXPECT_THAT(harness.phase(), HasSubstr("step 1: waiting for rank 0, 1; shard 0: not heard for "));
}

TEST(StatusTest, SaysWhyNoJobCanBeRegistered) {
  MachineHarness harness;
  harness.Stand();
  v1::ShardState state;
  state.set_durability(v1::DURABILITY_MODE_JOURNAL);
  harness.State(0, state);
  state.set_durability(v1::DURABILITY_MODE_NONE);
  harness.State(1, state);
  EXPECT_THAT(harness.phase(), HasSubstr("idle: no job is registered, and none can be: shard 0 "
                                         "has durability journal, shard 1 has none"));
}

TEST(StatusTest, SaysWhatToDoAboutAJobThatStopped) {
  MachineHarness harness;
  harness.Stand();
  v1::ShardState lost;
  lost.set_data_loss("journal lost");
  harness.State(0, lost);
  harness.State(1, StateAfterStep(1));
  EXPECT_THAT(harness.phase(), EndsWith("journal lost; to go on, start all shards on empty data "
                                        "directories and run: kaonctl checkpoint restore"));
}

}  // namespace
}  // namespace kaon::coordinator
