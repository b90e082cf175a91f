// Lost workers: who is missed, and what the job's policy makes of it. protocol.md 2.2, "Worker
// lost": "policy per job `wait` (default) | `shrink` (new member set and round, mean re-weighted) |
// `fail`. Never a partial contribution." A worker that is lost is waited for again as soon as it,
// or a process in its place, joins or begins.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/machine/step_machine.h"

namespace kaon::coordinator {

// "A worker is lost when a step that another one has begun, and follows, has waited
// `worker_loss_seconds` for it with no stream of it open and no call of it heard; time in which the
// coordinator did not run or did not hear a shard is not counted."
std::vector<uint32_t> StepMachine::AbsentWorkers() const {
  const bool waits = phase_ == Phase::kReady || (phase_ == Phase::kRound && plan_.has_step());
  // "The initial weights are rank 0's alone, lost or not"; and nobody can be blamed for what no
  // worker could answer.
  if (!waits || !weights_loaded_ || !stopped_.ok() || !CheckHeard().ok()) return {};
  const v1::WorkerLossPolicy policy = registration_->definition().worker_loss();
  if (policy != v1::WORKER_LOSS_POLICY_SHRINK && policy != v1::WORKER_LOSS_POLICY_FAIL) return {};
  std::set<uint32_t> there;
  for (const auto& [call, waiter] : waiters_) {
    if (waiter.step == NextStep()) there.insert(waiter.rank);
  }
  std::vector<uint32_t> absent;
  // Somebody must be left who has begun.
  if (!membership_.AnyBegun(NextStep(), there)) return absent;
  for (uint32_t rank = 0; rank < membership_.world_size(); ++rank) {
    if (there.count(rank) == 0 && membership_.lost().count(rank) == 0) absent.push_back(rank);
  }
  return absent;
}

// "Under `shrink` an open round goes on without whoever comes back; the next step waits for it
// again, and so does a round that has to be opened anyway. Its pushes meanwhile are ABORTED, its
// AwaitStep ends with the step's record. Under `fail` the holder stops the job until it is
// restored; another holder finds the loss out anew, after as long."
void StepMachine::LoseWorkers(absl::Time now) {
  const double seconds = registration_ ? registration_->definition().worker_loss_seconds() : 0;
  const std::vector<uint32_t> lost = watch_.Tick(now, AbsentWorkers(), absl::Seconds(seconds));
  if (lost.empty()) return;
  if (registration_->definition().worker_loss() == v1::WORKER_LOSS_POLICY_FAIL) {
    failure_ = {timeline_, absl::FailedPreconditionError(absl::StrCat(
                               "rank ", absl::StrJoin(lost, ", "), " was lost: step ", NextStep(),
                               " waited ", seconds,
                               " s for it (worker_loss is fail); restore the job from a checkpoint "
                               "to go on"))};
    Stop(failure_.second);
    return;
  }
  for (const uint32_t rank : lost) membership_.Lose(rank);
  MaybeOpenStepRound();
}

}  // namespace kaon::coordinator
