#include "server/coordinator/machine/requests/job_deletions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::coordinator {

namespace {

absl::Status CheckTimeline(const v1::DeleteJobRequest& request, const JobState& job) {
  if (request.timeline() == job.timeline) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", request.job(), "\" is in timeline ", job.timeline,
                   ", it is to be deleted in timeline ", request.timeline(),
                   ": it was rolled back, restored or registered again since; look at it again"));
}

}  // namespace

bool JobDeletions::Repeats(const v1::DeleteJobRequest& request,
                           const v1::StepPlan& under_way) const {
  if (request.request_id() == 0) return false;
  if (pending_) return pending_->request.request_id() == request.request_id();
  return under_way.job_deletion().request_id() == request.request_id();
}

bool JobDeletions::IsDone(const v1::DeleteJobRequest& request, const JobState& job) const {
  return !pending_ && request.request_id() != 0 &&
         job.NewestPlan().job_deletion().request_id() == request.request_id();
}

absl::Status JobDeletions::Check(const v1::DeleteJobRequest& request, const JobState& job,
                                 const v1::StepPlan& under_way) const {
  if (request.timeline() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeline is 0, must be that of the job, ", job.timeline));
  }
  if (pending_ || under_way.has_job_deletion()) {
    return absl::AbortedError("another request deletes the job");
  }
  return CheckTimeline(request, job);
}

absl::StatusOr<v1::StepPlan> JobDeletions::Plan(const JobState& job) {
  KAON_RETURN_IF_ERROR(CheckTimeline(pending_->request, job));
  pending_->planned = true;
  v1::StepPlan plan;
  plan.set_job(pending_->request.job());
  plan.mutable_job_deletion()->set_request_id(pending_->request.request_id());
  return plan;
}

Actions JobDeletions::End(const absl::Status& status, const JobState& job) {
  if (!pending_) return {};
  ReplyDelete reply;
  reply.call = pending_->call;
  reply.config_revision = job.config_revision;
  if (status.ok()) {
    v1::DeleteJobResponse response;
    response.set_position(job.position);
    reply.response = std::move(response);
  } else {
    reply.response = status;
  }
  pending_.reset();
  return {std::move(reply)};
}

}  // namespace kaon::coordinator
