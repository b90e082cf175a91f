#include "server/coordinator/machine/requests/restores.h"

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

namespace kaon::coordinator {

namespace {

// Puts the registration of the checkpoint on the shards of the job that runs, which it must fit.
absl::Status Fit(const v1::RestoreCheckpointRequest& request, const JobState& job,
                 v1::RegisterBody& restored) {
  const std::string& name = job.registration->definition().name();
  if (request.job() != name) {
    return absl::FailedPreconditionError(absl::StrCat("job \"", proto::Excerpt(request.job()),
                                                      "\" is to be restored, the job that runs is "
                                                      "\"",
                                                      name, "\""));
  }
  // Steps went on while the checkpoint was verified, but no other caller took the job back.
  if (request.expected_step() > job.applied_step) {
    return absl::FailedPreconditionError(absl::StrCat("expected_step is ", request.expected_step(),
                                                      ", the job is at step ", job.applied_step));
  }
  const v1::Placement& running = job.registration->placement();
  v1::Placement& placement = *restored.mutable_placement();
  placement.set_num_shards(running.num_shards());
  const int known = std::min(running.parameters_size(), placement.parameters_size());
  for (int id = 0; id < known; ++id) {
    placement.mutable_parameters(id)->set_shard(running.parameters(id).shard());
  }
  job::KeepWorkers(*job.registration, restored);
  job::KeepTiers(*job.registration, restored);
  return job::CheckRestoreFits(*job.registration, restored);
}

uint64_t NextTimeline(const RestoreOrder& order, const JobState& job) {
  return std::max(job.timeline, order.manifest->timeline()) + 1;
}

}  // namespace

bool Restores::Repeats(const RestoreOrder& order, const v1::StepPlan& under_way) const {
  const uint64_t id =
      pending_ ? pending_->order.request.request_id() : under_way.restore().request_id();
  return id != 0 && id == order.request.request_id();
}

bool Restores::IsDone(const RestoreOrder& order, const JobState& job) const {
  const uint64_t id = order.request.request_id();
  return !pending_ && id != 0 && job.NewestPlan().restore().request_id() == id;
}

absl::Status Restores::Check(const RestoreOrder& order, const JobState& job,
                             const v1::StepPlan& under_way) const {
  if (pending_ || under_way.has_restore()) {
    return absl::AbortedError("the state of another checkpoint is being taken");
  }
  return PlanOf(order, job).status();
}

absl::StatusOr<v1::StepPlan> Restores::PlanOf(const RestoreOrder& order,
                                              const JobState& job) const {
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
  if (job.registration) {
    if (order.timeline != 0 && order.timeline != job.timeline) {
      // This very request may have begun the new timeline.
      return absl::UnavailableError(absl::StrCat("the job was in timeline ", order.timeline,
                                                 " when the checkpoint was read, it is in ",
                                                 job.timeline));
    }
    KAON_RETURN_IF_ERROR(Fit(order.request, job, *body.mutable_registration()));
    plan.set_timeline(NextTimeline(order, job));
    return plan;
  }
  if (!order.request.job().empty()) {
    return absl::FailedPreconditionError(absl::StrCat("job \"", proto::Excerpt(order.request.job()),
                                                      "\" is to be restored, no job runs"));
  }
  // The job keeps the checkpoint's workers until a trainer registers: the request names none. It
  // was the old job that was paused.
  v1::RegisterBody workers;
  *workers.mutable_definition() = job::WorkersOf(body.registration().definition());
  workers.mutable_definition()->clear_paused();
  *workers.mutable_requested() = workers.definition();
  job::KeepWorkers(workers, *body.mutable_registration());
  KAON_RETURN_IF_ERROR(PlaceOnShards(limits_, *body.mutable_registration()));
  // A deleted job may have used later timelines than the checkpoint's.
  plan.set_timeline(std::max(job.timeline, manifest.timeline() + 1));
  if (job.position > 0) body.mutable_registration()->set_first_timeline(plan.timeline());
  return plan;
}

absl::StatusOr<v1::StepPlan> Restores::Plan(const JobState& job) {
  absl::StatusOr<v1::StepPlan> plan = PlanOf(pending_->order, job);
  pending_->planned = plan.ok();
  return plan;
}

Actions Restores::End(const absl::Status& status, const JobState& job) {
  if (!pending_) return {};
  ReplyRestore reply;
  reply.call = pending_->call;
  if (status.ok()) {
    v1::RestoreCheckpointResponse response;
    response.set_timeline(job.timeline);
    response.set_position(job.position);
    reply.response = std::move(response);
  } else {
    reply.response = status;
  }
  pending_.reset();
  return {std::move(reply)};
}

std::vector<checkpoint::RestoredCheckpoint> Restores::InUse(const JobState& job) const {
  std::vector<checkpoint::RestoredCheckpoint> in_use;
  if (restored_) in_use.push_back(*restored_);
  if (pending_) {
    in_use.push_back({pending_->order.manifest->id(), NextTimeline(pending_->order, job)});
  }
  return in_use;
}

}  // namespace kaon::coordinator
