#include "server/coordinator/machine_watch.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/coordinator/machine/machine_harness.h"
#include "tests/server/coordinator/machine/test_job.h"
#include "tests/testing/captured_log.h"

namespace kaon::coordinator {
namespace {

class MachineWatchTest : public ::testing::Test {
 protected:
  bool Serving() {
    watch_.Look(harness_.machine());
    return health_.serving();
  }

  std::string Counted() {
    std::string text;
    for (const v1::EventCount& one : counts_.Happened()) {
      absl::StrAppend(&text, one.name(), "=", one.count(), " ");
    }
    return text;
  }

  MachineHarness harness_;
  monitor::EventCounts counts_;
  monitor::ServiceHealth health_{"kaon.v1.Coordinator"};
  MachineWatch watch_{health_, counts_};
};

TEST_F(MachineWatchTest, AStoppedJobDoesNotServe) {
  EXPECT_TRUE(Serving());
  harness_.Train();
  EXPECT_TRUE(Serving());
  v1::ShardState lost;
  lost.set_data_loss("its disk is gone");
  harness_.State(1, lost);
  EXPECT_FALSE(Serving());
  EXPECT_FALSE(Serving());
  EXPECT_EQ(Counted(), "job_stopped=1 takeover=1 ");
}

// A state that cannot be checkpointed is faulty, until another one replaces it. A checkpoint that
// fails for another reason says nothing about the state.
TEST_F(MachineWatchTest, AStateThatIsNoCheckpointDoesNotServe) {
  watch_.OnCheckpoint("c1", absl::ResourceExhaustedError("disk full"));
  EXPECT_TRUE(health_.serving());
  watch_.OnCheckpoint("c2", absl::DataLossError("shard 1: parameter 'w' is not finite"));
  EXPECT_FALSE(health_.serving());
  EXPECT_EQ(health_.reason(kCheckpointCause),
            "checkpoint c2 is given up: shard 1: parameter 'w' is not finite");
  watch_.OnCheckpoint("c3", absl::OkStatus());
  EXPECT_TRUE(health_.serving());
  watch_.OnCheckpoint("c4", absl::DataLossError("as before"));
  v1::CoordinatorToShard restored;
  restored.mutable_decision()->mutable_plan()->set_position(9);
  restored.mutable_decision()->mutable_plan()->mutable_restore();
  watch_.OnSent(restored);
  EXPECT_TRUE(health_.serving());
  EXPECT_EQ(Counted(), "checkpoint_created=1 checkpoint_failed=3 restore=1 ");
}

TEST_F(MachineWatchTest, CountsTakeoversAndTheirEnd) {
  EXPECT_TRUE(Serving());
  EXPECT_EQ(Counted(), "");
  harness_.Train();
  EXPECT_TRUE(Serving());
  EXPECT_TRUE(Serving());
  EXPECT_EQ(Counted(), "takeover=1 ");
  v1::Ballot higher = harness_.ballot();
  higher.set_counter(higher.counter() + 1);
  harness_.Refuse(0, v1::REFUSAL_REASON_OLD_BALLOT, "", higher, "coordinator-b:1");
  const testing::CapturedLog log;
  EXPECT_TRUE(Serving());
  EXPECT_EQ(Counted(), "holder_replaced=1 takeover=1 ");
  EXPECT_EQ(log.text(),
            "holds the shards no more: standing by: coordinator-b:1 holds the shards\n");
}

// Workers whose gradients are far from the others' are counted and shown (P11).
TEST_F(MachineWatchTest, CountsAndShowsWorkersWhoseGradientsAreFarFromTheOthers) {
  harness_.Train(3);
  for (uint64_t step = 1; step <= 10; ++step) {
    for (uint32_t rank = 0; rank < 3; ++rank) ASSERT_TRUE(harness_.Begin(rank, step).ok());
    const v1::StepPlan plan = *harness_.SentPlan(0);
    for (int shard : {0, 1}) {
      v1::ShardToCoordinator vote;
      *vote.mutable_prepared() = harness_.VoteFor(plan, shard);
      for (uint32_t rank = 0; rank < 3; ++rank) {
        v1::WorkerSum& sum = *vote.mutable_prepared()->add_worker_sums();
        sum.set_rank(rank);
        sum.set_sum_squares(step == 10 && rank == 2 ? 2e6 : 2);
      }
      harness_.FromShard(shard, vote);
    }
    EXPECT_EQ(harness_.SentRecord(0)->decision().outcome(), v1::OUTCOME_APPLY);
    for (int shard : {0, 1}) harness_.Applied(shard, plan.position());
    harness_.ClearSent();
    watch_.Look(harness_.machine());
    watch_.Look(harness_.machine());
  }
  EXPECT_EQ(Counted(), "grad_norm_outlier=1 takeover=1 ");
  const std::vector<WorkerSnapshot> workers = harness_.machine().Snapshot().workers;
  ASSERT_EQ(workers.size(), 3u);
  EXPECT_DOUBLE_EQ(*workers[2].grad_norm, 2000);
  EXPECT_EQ(workers[2].grad_norm_outliers, 1u);
  EXPECT_DOUBLE_EQ(*workers[0].grad_norm, 2);
  EXPECT_EQ(workers[0].grad_norm_outliers, 0u);
}

TEST_F(MachineWatchTest, CountsWorkersThatTheJobGoesOnWithout) {
  v1::JobDefinition job = TestJob(2);
  job.set_worker_loss(v1::WORKER_LOSS_POLICY_SHRINK);
  job.set_worker_loss_seconds(1);
  harness_.Train(job);
  ASSERT_TRUE(harness_.Begin(0, 1).ok());
  harness_.Await(0, 1);
  const std::vector<WorkerSnapshot> workers = harness_.machine().Snapshot().workers;
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_GT(workers[0].calls, workers[1].calls);
  EXPECT_TRUE(workers[0].awaits);
  EXPECT_FALSE(workers[1].awaits);
  for (int tick = 0; tick < 20; ++tick) {
    for (int shard : {0, 1}) harness_.Applied(shard, 0);
    harness_.Tick();
    watch_.Look(harness_.machine());
  }
  EXPECT_EQ(Counted(), "takeover=1 worker_lost=1 ");
  // Lost anew only after it was back.
  ASSERT_TRUE(harness_.Begin(1, 1).ok());
  watch_.Look(harness_.machine());
  EXPECT_EQ(Counted(), "takeover=1 worker_lost=1 ");
}

TEST_F(MachineWatchTest, CountsRoundsAfterTheFirstAndControlEntriesOnceEach) {
  v1::CoordinatorToShard plan;
  plan.mutable_plan()->set_position(3);
  plan.mutable_plan()->set_round(1);
  watch_.OnSent(plan);
  EXPECT_EQ(Counted(), "");
  for (uint64_t round : {2, 2, 2, 3, 3}) {
    plan.mutable_plan()->set_round(round);
    watch_.OnSent(plan);
  }
  plan.mutable_plan()->mutable_ballot()->set_counter(9);
  watch_.OnSent(plan);
  EXPECT_EQ(Counted(), "round_reopened=3 ");
  v1::CoordinatorToShard decision;
  decision.mutable_decision()->mutable_plan()->set_position(4);
  decision.mutable_decision()->mutable_plan()->mutable_restore();
  for (int shard = 0; shard < 3; ++shard) watch_.OnSent(decision);
  decision.mutable_decision()->mutable_plan()->set_position(5);
  decision.mutable_decision()->mutable_plan()->mutable_group_change();
  watch_.OnSent(decision);
  EXPECT_EQ(Counted(), "group_change=1 restore=1 round_reopened=3 ");
}

// A thousand steps and copies of their decisions for each shard are one line, not two thousand.
TEST_F(MachineWatchTest, StepsHaveALineAMinute) {
  const testing::CapturedLog log;
  for (uint64_t step = 1; step <= 1000; ++step) {
    v1::CoordinatorToShard decision;
    v1::StepPlan& plan = *decision.mutable_decision()->mutable_plan();
    plan.set_position(step + 2);
    plan.mutable_step()->set_step(step);
    plan.mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
    plan.mutable_step()->add_members();
    decision.mutable_decision()->mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
    decision.mutable_decision()->mutable_decision()->set_loss(2.5);
    for (int shard = 0; shard < 2; ++shard) watch_.OnSent(decision);
  }
  EXPECT_EQ(log.text(), "step 1 applied; loss 2.5; 1 workers\n");
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
