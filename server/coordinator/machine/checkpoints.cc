#include "server/coordinator/machine/checkpoints.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/checkpoint/attempt_number.h"

namespace kaon::coordinator {

Checkpoints::Checkpoints(const StepMachineOptions& options)
    : num_shards_(static_cast<int>(options.shard_addresses.size())),
      has_directory_(options.takes_checkpoints),
      every_steps_(options.checkpoint_every_steps),
      patience_(options.checkpoint_patience),
      random_(options.seed) {}

absl::Status Checkpoints::Check(const JobState& job) const {
  if (!has_directory_) {
    return absl::FailedPreconditionError(
        "this coordinator has no checkpoint directory, see its --checkpoint-dir");
  }
  if (!job.weights_loaded) {
    return absl::FailedPreconditionError("the weights are not loaded: there is no state to keep");
  }
  if (run_) {
    return absl::AlreadyExistsError(
        absl::StrCat("another checkpoint is being written: ", run_->Progress()));
  }
  return absl::OkStatus();
}

bool Checkpoints::IsDue(const JobState& job) const {
  return every_steps_ > 0 && has_directory_ && !run_ && job.NewestPlan().has_step() &&
         job.applied_step > 0 && job.applied_step % every_steps_ == 0;
}

void Checkpoints::Start(const std::string& id, std::optional<CallId> call, const JobState& job) {
  const std::string& name = job.registration->definition().name();
  checkpoint::CheckpointFacts facts;
  facts.id = id;
  if (id.empty()) {
    // An id has at most 64 characters, so cut the job's name.
    const std::string suffix = absl::StrCat("-", job.timeline, "-", job.position);
    facts.id = name.substr(0, 64 - suffix.size()) + suffix;
  }
  facts.registration = *job.registration;
  facts.last_record = *job.record;
  facts.step = job.applied_step;
  run_.emplace(std::move(facts), checkpoint::AttemptNumber(name, random_()), num_shards_, call);
}

std::optional<v1::TakeCheckpoint> Checkpoints::Ask(int shard) const {
  if (!run_ || !run_->Lacks(shard)) return std::nullopt;
  return run_->Ask();
}

Actions Checkpoints::OnReport(int shard, const v1::CheckpointReport& report,
                              std::vector<checkpoint::RestoredCheckpoint> in_use) {
  if (!run_) return {};
  if (const absl::Status status = run_->OnReport(shard, report); !status.ok()) {
    return Abandon(status);
  }
  auto parts = run_->TakeParts();
  if (!parts) return {};
  FinishCheckpoint finish{run_->facts(),
                          run_->attempt(),
                          *std::move(parts),
                          /*is_there=*/false,
                          /*retain=*/run_->is_periodic(),
                          std::move(in_use),
                          {}};
  return {std::move(finish)};
}

Actions Checkpoints::OnFinished(uint64_t attempt,
                                const absl::StatusOr<v1::CheckpointSummary>& summary) {
  if (!run_ || run_->attempt() != attempt) return {};
  if (!summary.ok()) {
    // A holder before this one may have taken the same periodic checkpoint.
    return End(summary.status(), run_->is_periodic() && absl::IsAlreadyExists(summary.status()));
  }
  Actions answers;
  if (run_->call()) {
    v1::CreateCheckpointResponse response;
    *response.mutable_checkpoint() = *summary;
    answers.push_back(ReplyCreate{*run_->call(), std::move(response), ""});
  }
  run_.reset();
  return answers;
}

Actions Checkpoints::Tick(absl::Time now) {
  if (!run_) return {};
  const absl::Status status = run_->Tick(now, patience_);
  return status.ok() ? Actions() : Abandon(status);
}

Actions Checkpoints::Abandon(const absl::Status& status) {
  if (!run_ || run_->handed_out()) return {};
  return End(status, /*is_there=*/false);
}

Actions Checkpoints::End(const absl::Status& status, bool is_there) {
  Actions actions;
  actions.push_back(
      FinishCheckpoint{run_->facts(), run_->attempt(), {}, is_there, false, {}, status});
  if (run_->call()) actions.push_back(ReplyCreate{*run_->call(), status, ""});
  run_.reset();
  return actions;
}

void Checkpoints::Cancel(CallId call) {
  if (run_ && run_->call() == call) run_->ForgetCall();
}

}  // namespace kaon::coordinator
