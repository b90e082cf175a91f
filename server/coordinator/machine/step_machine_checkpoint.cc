// The machine's side of checkpoints: when one is taken, of which entry, and what ends it. The
// shards write while steps go on; nothing here waits for them.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/checkpoint/attempt_number.h"
#include "server/coordinator/machine/step_machine.h"

namespace kaon::coordinator {

absl::Status StepMachine::TryCreate(CallId call, const v1::CreateCheckpointRequest& request) {
  const bool any = request.job().empty() && registration_;
  KAON_RETURN_IF_ERROR(CheckRunning(any ? registration_->definition().name() : request.job()));
  if (!options_.takes_checkpoints) {
    return absl::FailedPreconditionError(
        "this coordinator has no checkpoint directory, see its --checkpoint-dir");
  }
  if (!weights_loaded_) {
    return absl::FailedPreconditionError("the weights are not loaded: there is no state to keep");
  }
  if (run_) {
    return absl::AlreadyExistsError(
        absl::StrCat("another checkpoint is being written: ", run_->Progress()));
  }
  StartCheckpoint(request.id(), call);
  return absl::OkStatus();
}

void StepMachine::CreateCheckpoint(CallId call, const v1::CreateCheckpointRequest& request) {
  const absl::Status status = TryCreate(call, request);
  if (status.ok()) return;
  actions_.push_back(ReplyCreate{call, status, IsHolder() ? "" : HolderHint()});
}

// Of the newest decided entry: its decision goes to every shard before this does, and the next one
// after, so that each freezes the state right after it.
void StepMachine::StartCheckpoint(const std::string& id, std::optional<CallId> call) {
  checkpoint::CheckpointFacts facts;
  // With a job's name cut so that it is an id.
  const std::string suffix = absl::StrCat("-", timeline_, "-", position_);
  facts.id =
      id.empty() ? registration_->definition().name().substr(0, 64 - suffix.size()) + suffix : id;
  facts.registration = *registration_;
  facts.last_record = *record_;
  facts.step = applied_step_;
  const uint64_t attempt = checkpoint::AttemptNumber(registration_->definition().name(), random_());
  run_.emplace(std::move(facts), attempt, static_cast<int>(shards_.size()), call);
  AskForParts();
}

void StepMachine::TickCheckpoint(absl::Time now) {
  if (!run_) return;
  const absl::Status status = run_->Tick(now, options_.checkpoint_patience);
  if (!status.ok()) return AbandonCheckpoint(status);
  AskForParts();
}

void StepMachine::AskForParts() {
  if (!run_) return;
  for (int i = 0; i < shards_.size(); ++i) {
    if (!run_->Lacks(i)) continue;
    v1::CoordinatorToShard message;
    *message.mutable_checkpoint() = run_->Ask();
    Send(i, std::move(message));
  }
}

void StepMachine::OnCheckpointReport(int shard, const v1::CheckpointReport& report) {
  if (!run_) return;
  if (const absl::Status status = run_->OnReport(shard, report); !status.ok()) {
    return AbandonCheckpoint(status);
  }
  auto parts = run_->TakeParts();
  if (!parts) return;
  FinishCheckpoint finish{
      run_->facts(), run_->attempt(), *std::move(parts), false, run_->is_periodic(), {}, {}};
  if (restored_) finish.in_use.push_back(*restored_);
  if (restore_) {
    const v1::CheckpointManifest& manifest = *restore_->order.manifest;
    finish.in_use.push_back({manifest.id(), std::max(timeline_, manifest.timeline()) + 1});
  }
  actions_.push_back(std::move(finish));
}

void StepMachine::OnCheckpointFinished(uint64_t attempt,
                                       const absl::StatusOr<v1::CheckpointSummary>& summary) {
  if (!run_ || run_->attempt() != attempt) return;
  // A holder before this one may have taken the same one.
  const bool is_there = run_->is_periodic() && absl::IsAlreadyExists(summary.status());
  if (!summary.ok()) return EndCheckpoint(summary.status(), is_there);
  v1::CreateCheckpointResponse response;
  *response.mutable_checkpoint() = *summary;
  if (run_->call()) actions_.push_back(ReplyCreate{*run_->call(), std::move(response), ""});
  run_.reset();
}

void StepMachine::AbandonCheckpoint(const absl::Status& status) {
  // Once every part is durable it is no matter of the shards any more.
  if (run_ && !run_->handed_out()) EndCheckpoint(status, /*is_there=*/false);
}

void StepMachine::EndCheckpoint(const absl::Status& status, bool is_there) {
  actions_.push_back(
      FinishCheckpoint{run_->facts(), run_->attempt(), {}, is_there, false, {}, status});
  if (run_->call()) {
    actions_.push_back(ReplyCreate{*run_->call(), status, IsHolder() ? "" : HolderHint()});
  }
  run_.reset();
}

void StepMachine::MaybeTakeCheckpoint() {
  const uint64_t every = options_.checkpoint_every_steps;
  if (every == 0 || run_ || !options_.takes_checkpoints) return;
  if (!record_ || !record_->plan().has_step()) return;
  if (applied_step_ == 0 || applied_step_ % every != 0) return;
  StartCheckpoint("", std::nullopt);
}

}  // namespace kaon::coordinator
