// The machine's side towards admins.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/coordinator/machine/entry_name.h"
#include "server/coordinator/machine/step_machine.h"

namespace kaon::coordinator {

// Returns OK if the call waits in `requests_`.
absl::Status StepMachine::TrySetGroup(CallId call, const v1::SetGroupRequest& request) {
  KAON_RETURN_IF_ERROR(CheckAdmin(request.job()));
  if (requests_.changes.Repeats(request, UnderWay())) {
    Do(requests_.changes.End(absl::UnavailableError("the same request was made again"), job_));
    requests_.changes.Wait(call, request);
    return absl::OkStatus();
  }
  KAON_RETURN_IF_ERROR(requests_.changes.Check(request, job_, UnderWay()));
  requests_.changes.Wait(call, request);
  // A step may wait for a worker that does not come back, so a change of the workers does not wait
  // for the step. Not all PREPAREs of the step are there, or it would be decided; it is planned
  // anew after the change.
  const bool is_urgent = request.group().empty() && OpenPlan().has_step();
  if (phase_ == Phase::kReady || is_urgent) OpenGroupChange();
  return absl::OkStatus();
}

void StepMachine::SetGroup(CallId call, const v1::SetGroupRequest& request) {
  const absl::Status status = TrySetGroup(call, request);
  if (!status.ok()) Do(ReplySetGroup{call, status, "", job_.config_revision});
}

bool StepMachine::OpenGroupChange() {
  if (!requests_.changes.waits() || !stopped_.ok()) return false;
  absl::StatusOr<v1::StepPlan> plan = requests_.changes.Plan(job_, membership_);
  if (plan.ok()) {
    OpenRound(*std::move(plan));
  } else {
    Do(requests_.changes.End(plan.status(), job_));
  }
  return plan.ok();
}

// A job that stopped because it lost a worker can go on from a checkpoint, or be deleted. It may
// have lost the state of a shard since.
absl::Status StepMachine::CheckReplaceable() const {
  const bool lost_worker =
      failure_.first == LogPoint{job_.position, job_.timeline} && !absl::IsDataLoss(stopped_);
  return lost_worker ? absl::OkStatus() : stopped_;
}

// Returns OK if the call waits in `requests_`.
absl::Status StepMachine::TryRestore(CallId call, const RestoreOrder& order) {
  KAON_RETURN_IF_ERROR(CheckHolder());
  // A job that lost the state of a shard goes on from a checkpoint, too.
  if (!restore_above_) KAON_RETURN_IF_ERROR(CheckReplaceable());
  KAON_RETURN_IF_ERROR(CheckHeard());
  if (requests_.restores.Repeats(order, UnderWay())) {
    const bool planned = !requests_.restores.WaitsForItsPlan();
    Do(requests_.restores.End(absl::UnavailableError("the same request was made again"), job_));
    requests_.restores.Wait(call, order, planned);
    return absl::OkStatus();
  }
  KAON_RETURN_IF_ERROR(requests_.restores.Check(order, job_, UnderWay()));
  requests_.restores.Wait(call, order, /*planned=*/false);
  // A step that waits for its workers would wait for them here too. Not all of its PREPAREs are
  // there, or it would be decided.
  if (phase_ == Phase::kReady || OpenPlan().has_step()) OpenRestore();
  return absl::OkStatus();
}

void StepMachine::Restore(CallId call, const RestoreOrder& order) {
  // The entry of a repeated order may have become the newest while the log and the directory were
  // read again.
  if (phase_ == Phase::kReady && requests_.restores.IsDone(order, job_)) {
    requests_.restores.Wait(call, order, /*planned=*/true);
    return Do(requests_.restores.End(absl::OkStatus(), job_));
  }
  const absl::Status status = TryRestore(call, order);
  if (!status.ok()) Do(ReplyRestore{call, status, ""});
}

bool StepMachine::OpenRestore() {
  if (!requests_.restores.WaitsForItsPlan()) return false;
  absl::StatusOr<v1::StepPlan> plan = requests_.restores.Plan(job_);
  if (plan.ok()) {
    if (restore_above_) {
      plan->set_position(restore_above_->position + 1);
      plan->set_timeline(std::max(plan->timeline(), restore_above_->timeline + 1));
    }
    OpenRound(*std::move(plan));
  } else {
    Do(requests_.restores.End(plan.status(), job_));
  }
  return plan.ok();
}

// Returns OK if the call waits in `requests_`.
absl::Status StepMachine::TryDelete(CallId call, const v1::DeleteJobRequest& request) {
  KAON_RETURN_IF_ERROR(CheckHolder());
  if (request.job().empty()) {
    return absl::InvalidArgumentError("job is empty, must be the name of the job to delete");
  }
  // A request that is under way may have removed the job already.
  const bool repeats = requests_.deletions.Repeats(request, UnderWay());
  if (!repeats) {
    KAON_RETURN_IF_ERROR(CheckJob(request.job()));
    KAON_RETURN_IF_ERROR(CheckReplaceable());
  }
  KAON_RETURN_IF_ERROR(CheckHeard());
  if (repeats) {
    const bool planned = !requests_.deletions.WaitsForItsPlan();
    Do(requests_.deletions.End(absl::UnavailableError("the same request was made again"), job_));
    requests_.deletions.Wait(call, request, planned);
    return absl::OkStatus();
  }
  KAON_RETURN_IF_ERROR(requests_.deletions.Check(request, job_, UnderWay()));
  requests_.deletions.Wait(call, request, /*planned=*/false);
  // As for a restore: a step would wait for its workers.
  if (phase_ == Phase::kReady || OpenPlan().has_step()) OpenDeletion();
  return absl::OkStatus();
}

void StepMachine::DeleteJob(CallId call, const v1::DeleteJobRequest& request) {
  if (phase_ == Phase::kReady && requests_.deletions.IsDone(request, job_)) {
    requests_.deletions.Wait(call, request, /*planned=*/true);
    return Do(requests_.deletions.End(absl::OkStatus(), job_));
  }
  const absl::Status status = TryDelete(call, request);
  // A coordinator that does not hold the shards does not know the log either.
  const uint64_t config_revision = IsHolder() ? job_.config_revision : 0;
  if (!status.ok()) Do(ReplyDelete{call, status, "", config_revision});
}

bool StepMachine::OpenDeletion() {
  if (!requests_.deletions.WaitsForItsPlan()) return false;
  absl::StatusOr<v1::StepPlan> plan = requests_.deletions.Plan(job_);
  if (plan.ok()) {
    OpenRound(*std::move(plan));
  } else {
    Do(requests_.deletions.End(plan.status(), job_));
  }
  return plan.ok();
}

void StepMachine::CreateCheckpoint(CallId call, const v1::CreateCheckpointRequest& request) {
  absl::Status status = CheckAdmin(request.job());
  if (status.ok()) status = checkpoints_.Check(job_);
  if (!status.ok()) return Do(ReplyCreate{call, status, ""});
  checkpoints_.Start(request.id(), call, job_);
  AskForParts();
}

void StepMachine::DrainShard(CallId call, const v1::DrainShardRequest& request) {
  absl::Status status = CheckHolder();
  if (status.ok()) status = requests_.drains.Check(request.shard(), shards_, 2 * options_.takeover);
  if (!status.ok()) return Do(ReplyDrain{call, status, ""});
  requests_.drains.Start(call, request.shard());
  AskToDrain();
}

void StepMachine::AskToDrain() {
  const std::optional<v1::Drain> ask = requests_.drains.Ask();
  if (!ask || phase_ != Phase::kReady) return;
  v1::CoordinatorToShard message;
  *message.mutable_drain() = *ask;
  Send(*requests_.drains.shard(), std::move(message));
}

void StepMachine::AskForParts() {
  for (int i = 0; i < shards_.size(); ++i) {
    std::optional<v1::TakeCheckpoint> ask = checkpoints_.Ask(i);
    if (!ask) continue;
    v1::CoordinatorToShard message;
    *message.mutable_checkpoint() = *std::move(ask);
    Send(i, std::move(message));
  }
}

void StepMachine::OnCheckpointFinished(uint64_t attempt,
                                       const absl::StatusOr<v1::CheckpointSummary>& summary) {
  Do(checkpoints_.OnFinished(attempt, summary));
}

}  // namespace kaon::coordinator
