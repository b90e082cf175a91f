// Mode interval(K): the machine's part in a rollback. What is to be planned is found in
// rollback_choice.h; once it is decided it is adopted as a restore is.
#include "server/coordinator/machine/rollback_choice.h"
#include "server/coordinator/machine/step_machine.h"

namespace kaon::coordinator {

void StepMachine::BeginRollback(const Recovery& recovery) {
  // The newest record may be taken back: nobody is told of it any more.
  step_record_.reset();
  wanted_position_ = 0;
  if (recovery.rollback) return OpenRound(*recovery.rollback);
  // They are asked again at the next heartbeat, under this ballot.
  phase_ = Phase::kReading;
  for (const int shard : recovery.wait_for) {
    shards_[shard].state.reset();
    shards_[shard].obstacle = "the first snapshot of its timeline is not on its disk yet";
  }
}

bool StepMachine::ReadAgainIfForgotten() {
  bool again = false;
  for (ShardView& view : shards_) {
    if (!view.state || !view.state->rollback_needed()) continue;
    const bool helped = record_ && TakesBack(record_->plan()) &&
                        view.state->applied_position() < record_->plan().position();
    if (helped) view.state->set_rollback_needed(false);
    again |= !helped;
  }
  if (again) Stand();
  return again;
}

}  // namespace kaon::coordinator
