// The admins' side of the machine: the state of a checkpoint as a log entry, which begins another
// timeline (protocol.md section 2.2).
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/restore_fit.h"
#include "job/settings.h"
#include "job/workers.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/coordinator/machine/registration.h"
#include "server/coordinator/machine/step_machine.h"

namespace kaon::coordinator {

namespace {

// The registration of the checkpoint on the shards of the job that runs, which it must fit.
absl::Status Fit(const v1::RestoreCheckpointRequest& request, const v1::RegisterBody& registration,
                 uint64_t applied_step, v1::RegisterBody& restored) {
  const std::string& name = registration.definition().name();
  if (request.job() != name) {
    return absl::FailedPreconditionError(absl::StrCat("job \"", proto::Excerpt(request.job()),
                                                      "\" is to be restored, the job that runs is "
                                                      "\"",
                                                      name, "\""));
  }
  // Steps went on while the checkpoint was verified; but nobody else has taken the job back.
  if (request.expected_step() > applied_step) {
    return absl::FailedPreconditionError(absl::StrCat("expected_step is ", request.expected_step(),
                                                      ", the job is at step ", applied_step));
  }
  const v1::Placement& running = registration.placement();
  v1::Placement& placement = *restored.mutable_placement();
  placement.set_num_shards(running.num_shards());
  const int known = std::min(running.parameters_size(), placement.parameters_size());
  for (int id = 0; id < known; ++id) {
    placement.mutable_parameters(id)->set_shard(running.parameters(id).shard());
  }
  job::KeepWorkers(registration, restored);
  return job::CheckRestoreFits(registration, restored);
}

}  // namespace

absl::StatusOr<v1::StepPlan> StepMachine::PlanRestore(const RestoreOrder& order) const {
  const v1::CheckpointManifest& manifest = *order.manifest;
  v1::StepPlan plan;
  plan.set_job(manifest.job());
  v1::RestoreBody& body = *plan.mutable_restore();
  *body.mutable_registration() = manifest.registration();
  body.set_checkpoint(manifest.id());
  body.set_manifest_sha256(order.manifest_sha256);
  body.set_step(manifest.step());
  *body.mutable_last_decision() = manifest.last_record().decision();
  body.set_request_id(order.request.request_id());
  if (registration_) {
    if (order.timeline != 0 && order.timeline != timeline_) {
      // Perhaps by this very request.
      return absl::UnavailableError(absl::StrCat("the job was in timeline ", order.timeline,
                                                 " when the checkpoint was read, it is in ",
                                                 timeline_));
    }
    KAON_RETURN_IF_ERROR(
        Fit(order.request, *registration_, applied_step_, *body.mutable_registration()));
    plan.set_timeline(std::max(timeline_, manifest.timeline()) + 1);
    return plan;
  }
  if (!order.request.job().empty()) {
    return absl::FailedPreconditionError(absl::StrCat("job \"", proto::Excerpt(order.request.job()),
                                                      "\" is to be restored, no job runs"));
  }
  // The checkpoint's workers stand until a trainer registers: nobody has asked for any here.
  v1::RegisterBody workers;
  *workers.mutable_definition() = job::WorkersOf(body.registration().definition());
  *workers.mutable_requested() = workers.definition();
  job::KeepWorkers(workers, *body.mutable_registration());
  PlacementLimits limits;
  limits.num_shards = static_cast<int>(shards_.size());
  limits.shard_capacity_bytes = options_.shard_capacity_bytes;
  KAON_RETURN_IF_ERROR(PlaceOnShards(limits, *body.mutable_registration()));
  plan.set_timeline(manifest.timeline() + 1);
  return plan;
}

// OK when the call waits in `restore_`.
absl::Status StepMachine::TryRestore(CallId call, const RestoreOrder& order) {
  KAON_RETURN_IF_ERROR(CheckHolder());
  // A job that lost a worker, and stops then, goes on from a checkpoint.
  if (failure_.first != timeline_) KAON_RETURN_IF_ERROR(stopped_);
  KAON_RETURN_IF_ERROR(CheckHeard());
  const bool planned = phase_ == Phase::kRound && plan_.has_restore();
  const bool decided = phase_ == Phase::kApplying && record_ && record_->plan().has_restore();
  const uint64_t open_request = restore_  ? restore_->order.request.request_id()
                                : planned ? plan_.restore().request_id()
                                : decided ? record_->plan().restore().request_id()
                                          : 0;
  if (open_request != 0 && open_request == order.request.request_id()) {
    const bool is_planned = !restore_ || restore_->planned;
    AnswerRestore(absl::UnavailableError("the same request was made again"));
    restore_ = PendingRestore{call, order, is_planned};
    return absl::OkStatus();
  }
  if (restore_ || planned || decided) {
    return absl::AbortedError("the state of another checkpoint is being taken");
  }
  KAON_RETURN_IF_ERROR(PlanRestore(order).status());
  restore_ = PendingRestore{call, order, false};
  // A step that waits for its workers would wait for them here too; its PREPAREs are not all there,
  // or it would be decided.
  if (phase_ == Phase::kReady || (phase_ == Phase::kRound && plan_.has_step())) OpenRestore();
  return absl::OkStatus();
}

void StepMachine::Restore(CallId call, const RestoreOrder& order) {
  // While the log and the directory were read again for a repetition, its entry may have become the
  // newest.
  const uint64_t request_id = order.request.request_id();
  if (phase_ == Phase::kReady && !restore_ && request_id != 0 && record_ &&
      record_->plan().restore().request_id() == request_id) {
    restore_ = PendingRestore{call, order, /*planned=*/true};
    return AnswerRestore(absl::OkStatus());
  }
  const absl::Status status = TryRestore(call, order);
  if (status.ok()) return;
  actions_.push_back(ReplyRestore{call, status, IsHolder() ? "" : HolderHint()});
}

bool StepMachine::OpenRestore() {
  if (!restore_ || restore_->planned) return false;
  absl::StatusOr<v1::StepPlan> plan = PlanRestore(restore_->order);
  if (!plan.ok()) {
    AnswerRestore(plan.status());
    return false;
  }
  restore_->planned = true;
  OpenRound(*std::move(plan));
  return true;
}

void StepMachine::AnswerRestore(const absl::Status& status) {
  if (!restore_) return;
  ReplyRestore reply;
  reply.call = restore_->call;
  reply.holder_address = IsHolder() ? "" : HolderHint();
  restore_.reset();
  if (status.ok()) {
    v1::RestoreCheckpointResponse response;
    response.set_timeline(timeline_);
    response.set_position(position_);
    reply.response = std::move(response);
  } else {
    reply.response = status;
  }
  actions_.push_back(std::move(reply));
}

void StepMachine::FailChanges(const absl::Status& status) {
  AnswerRegistrations(status);
  AnswerGroupChange(status);
  AnswerRestore(status);
  AbandonCheckpoint(status);
}

void StepMachine::AdoptNewTimeline(const v1::StepPlan& plan) {
  const v1::RestoreBody& restore = plan.restore();
  const absl::Status over = absl::AbortedError(
      plan.has_rollback()
          ? absl::StrCat("timeline ", timeline_, " is over: ", plan.rollback().reason(),
                         " in timeline ", plan.timeline())
          : absl::StrCat("timeline ", timeline_, " is over: the job goes on from step ",
                         restore.step(), " of checkpoint ", restore.checkpoint(), " in timeline ",
                         plan.timeline()));
  const v1::SnapshotPoint& target = plan.rollback().target();
  registration_ =
      plan.has_rollback() ? job::RegistrationAfter(plan.rollback()) : restore.registration();
  timeline_ = plan.timeline();
  if (plan.has_restore()) restored_ = {restore.checkpoint(), timeline_};
  config_revision_ = plan.position();
  applied_step_ = plan.has_rollback() ? target.step() : restore.step();
  weights_loaded_ = true;
  stopped_ = absl::OkStatus();
  // What was begun is of the old timeline, and joining tells of the new one.
  membership_.BeginTimeline(registration_->definition().world_size());
  step_record_.reset();
  wanted_position_ = 0;
  AnswerGroupChange(over);
  AbandonCheckpoint(over);
  FailAwaits(over);
}

}  // namespace kaon::coordinator
