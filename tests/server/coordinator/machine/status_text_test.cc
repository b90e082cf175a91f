// Every reason that keeps a job from going on is in the phase, which `kaonctl status` prints.
#include "server/coordinator/machine/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/coordinator/machine/machine_harness.h"

namespace kaon::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Two connected shards and no job.
class StatusTextTest : public testing::Test {
 protected:
  StatusTextTest() : shards_(2) {
    for (ShardView& view : shards_) view.connected = true;
  }

  StatusFacts Facts(MachinePhase phase) {
    return {phase, stopped_, "", absl::Seconds(1), shards_, job_, membership_, plan_, {}, {}};
  }
  void TakeJobAfterStep(uint64_t step) {
    job_.Read(StateAfterStep(step));
    membership_.Reset(job_.WorldSize());
  }

  absl::Status stopped_;
  std::vector<ShardView> shards_;
  JobState job_;
  Membership membership_;
  v1::StepPlan plan_;
};

TEST_F(StatusTextTest, NamesTheShardsThatRefuseToTalkToThisCoordinator) {
  shards_[0].connected = false;
  shards_[1].connected = false;
  shards_[1].ended = absl::FailedPreconditionError("this is shard 0 of 2");
  EXPECT_EQ(PhaseText(Facts(MachinePhase::kStandby)),
            "standing by: no holder known; shard 0: not connected; shard 1: FAILED_PRECONDITION: "
            "this is shard 0 of 2");
  EXPECT_THAT(ShardProblems(Facts(MachinePhase::kStandby)),
              ElementsAre("not connected", "FAILED_PRECONDITION: this is shard 0 of 2"));
  for (ShardView& view : shards_) view.connected = true;
  EXPECT_EQ(PhaseText(Facts(MachinePhase::kReady)), "idle: no job is registered");
}

TEST_F(StatusTextTest, NamesTheFirstFewShardsThatHaveAProblem) {
  shards_.resize(6);
  EXPECT_THAT(PhaseText(Facts(MachinePhase::kReading)), HasSubstr("waiting for shard 0, 1, 2, 3"));
  for (ShardView& view : shards_) view.connected = false;
  EXPECT_THAT(PhaseText(Facts(MachinePhase::kReading)),
              EndsWith("; shard 3: not connected; and 2 more shards"));
}

TEST_F(StatusTextTest, SaysWhichShardIsSilent) {
  TakeJobAfterStep(0);
  shards_[0].silence = absl::Seconds(3);
  EXPECT_EQ(PhaseText(Facts(MachinePhase::kReady)),
            "step 1: waiting for rank 0, 1; shard 0: not heard for 3s");
}

TEST_F(StatusTextTest, SaysWhyNoJobCanBeRegistered) {
  shards_[0].state.emplace().set_durability(v1::DURABILITY_MODE_JOURNAL);
  shards_[1].state.emplace().set_durability(v1::DURABILITY_MODE_NONE);
  EXPECT_THAT(PhaseText(Facts(MachinePhase::kReady)),
              HasSubstr("idle: no job is registered, and none can be: shard 0 has durability "
                        "journal, shard 1 has none"));
}

TEST_F(StatusTextTest, SaysWhatToDoAboutAJobThatStopped) {
  stopped_ = absl::InternalError("shard 0: refused");
  EXPECT_EQ(PhaseText(Facts(MachinePhase::kReady)),
            "stopped: INTERNAL: shard 0: refused; run one version on all servers, then restart the "
            "coordinators");
}

// With all workers dead, the shards wait for nothing but them.
TEST(StatusOfMachineTest, NamesTheRanksWhoseWorkersAreGone) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  EXPECT_THAT(harness.phase(), EndsWith("waiting for rank 0, 1, whose workers are not connected, "
                                        "then waiting for shard 0, 1"));
}

TEST(StatusOfMachineTest, SaysWhyAPlanIsRefusedAgainAndAgain) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  const v1::StepPlan plan = *harness.SentPlan(0);
  harness.Vote(0, plan);
  for (uint32_t rank : {0, 1}) harness.Await(rank, 1);
  harness.RefusePlan(1, "a rollback is needed", plan, std::nullopt, v1::REFUSAL_REASON_STALE_PLAN);
  EXPECT_THAT(harness.phase(), EndsWith("waiting for shard 1; shard 1: refuses: a rollback is "
                                        "needed"));
  // It does not any more.
  harness.Vote(1, plan);
  EXPECT_THAT(harness.phase(), Not(HasSubstr("refuses")));
}

}  // namespace
}  // namespace kaon::coordinator
