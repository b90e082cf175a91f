// A job that is in the middle of a step, for tests of the state machine: what the coordinator that
// trained it did, and what its shards would tell the next one. For one test, on its thread.
#ifndef KAON_TESTS_SERVER_COORDINATOR_MACHINE_MID_STEP_H_
#define KAON_TESTS_SERVER_COORDINATOR_MACHINE_MID_STEP_H_

#include <gtest/gtest.h>

#include <cstdint>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "tests/server/coordinator/machine/machine_harness.h"

namespace kaon::coordinator {

// The state of every shard of a trained job at `record`.
inline v1::ShardState StateAt(MachineHarness& source, const v1::StepRecord& record) {
  v1::ShardState state;
  const v1::JobDescription job = *source.machine().Snapshot().job;
  state.set_applied_position(record.plan().position());
  state.set_applied_step(job.applied_step());
  state.set_timeline(1);
  state.set_config_revision(job.config_revision());
  *state.mutable_applied_record() = record;
  *state.mutable_registration()->mutable_definition() = job.definition();
  *state.mutable_registration()->mutable_placement() = job.placement();
  *state.mutable_registration()->mutable_requested() = job.requested();
  *state.mutable_registration()->mutable_changed() = job.changed();
  state.set_weights_loaded(true);
  return state;
}

// A cluster that has trained one step, and the plan of the next, which is open.
class MidStep {
 public:
  explicit MidStep(uint32_t world_size = 2) {
    old_.Train(world_size);
    for (uint32_t rank = 0; rank < world_size; ++rank) EXPECT_TRUE(old_.Begin(rank, 1).ok());
    record_ = old_.VoteAndApply();
    for (uint32_t rank = 0; rank < world_size; ++rank) EXPECT_TRUE(old_.Begin(rank, 2).ok());
    plan_ = *old_.SentPlan(0);
  }
  MachineHarness& old() { return old_; }
  const v1::StepRecord& record() const { return record_; }
  const v1::StepPlan& plan() const { return plan_; }
  v1::ShardState state() { return StateAt(old_, record_); }
  v1::ShardState prepared(int shard, const v1::StepPlan& plan) {
    v1::ShardState state = StateAt(old_, record_);
    *state.mutable_prepared() = old_.VoteFor(plan, shard);
    return state;
  }

 private:
  MachineHarness old_;
  v1::StepRecord record_;
  v1::StepPlan plan_;
};

}  // namespace kaon::coordinator

#endif  // KAON_TESTS_SERVER_COORDINATOR_MACHINE_MID_STEP_H_
