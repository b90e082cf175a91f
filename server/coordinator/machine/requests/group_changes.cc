#include "server/coordinator/machine/requests/group_changes.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/route_validation.h"
#include "job/settings.h"
#include "job/validation.h"
#include "job/workers.h"
#include "proto/status_macros.h"

namespace kaon::coordinator {

namespace {

absl::StatusOr<v1::GroupChangeBody> BodyOf(const v1::RegisterBody& job,
                                           const v1::SetGroupRequest& request, uint64_t position) {
  const std::vector<v1::GroupSetting> settings(request.settings().begin(),
                                               request.settings().end());
  KAON_ASSIGN_OR_RETURN(v1::GroupChangeBody body,
                        job::MakeGroupChange(job, request.group(), settings, position));
  body.set_request_id(request.request_id());
  return body;
}

// Says whether the change is in place: the coordinator that would have answered may have died.
absl::Status OtherRevision(const v1::RegisterBody& job, const v1::SetGroupRequest& request,
                           uint64_t revision) {
  const absl::StatusOr<v1::GroupChangeBody> change = BodyOf(job, request, revision);
  const bool in_place = change.ok() && job::IsInPlace(job, *change);
  return absl::AbortedError(absl::StrCat("expected_revision is ", request.expected_revision(),
                                         ", config_revision is ", revision,
                                         in_place ? "; the change is in place" : ""));
}

v1::SetGroupResponse ResponseOf(const v1::SetGroupRequest& request, const JobState& job) {
  v1::SetGroupResponse response;
  response.set_config_revision(job.config_revision);
  const v1::JobDefinition& definition = job.registration->definition();
  for (const v1::ParameterGroup& group : definition.groups()) {
    if (group.name() == request.group()) *response.mutable_group() = group;
  }
  if (request.group().empty()) *response.mutable_workers() = job::WorkersOf(definition);
  return response;
}

}  // namespace

absl::Status CheckBegun(const v1::GroupChangeBody& change, const JobState& job,
                        const Membership& membership) {
  const v1::JobDefinition& definition = job.registration->definition();
  const uint32_t world_size = job::WorldSizeAfter(definition, change);
  for (const v1::Member& member : membership.MembersOf(job.NextStep())) {
    if (member.rank() >= world_size) continue;
    KAON_RETURN_IF_ERROR(job::ValidateContributions(member.micro_batches(),
                                                    definition.parameters_size(), world_size));
  }
  for (const job::RateMultipliers& multipliers : membership.BegunMultipliers(job.NextStep())) {
    KAON_RETURN_IF_ERROR(
        job::ValidateMultipliers(change.groups().empty() ? definition.groups() : change.groups(),
                                 definition, job.registration->placement(), multipliers));
  }
  return absl::OkStatus();
}

bool GroupChanges::Repeats(const v1::SetGroupRequest& request,
                           const v1::StepPlan& under_way) const {
  if (request.request_id() == 0) return false;
  if (pending_) return pending_->request.request_id() == request.request_id();
  return under_way.group_change().request_id() == request.request_id();
}

absl::Status GroupChanges::Check(const v1::SetGroupRequest& request, const JobState& job,
                                 const v1::StepPlan& under_way) const {
  if (request.expected_revision() != job.config_revision) {
    return OtherRevision(*job.registration, request, job.config_revision);
  }
  if (pending_ || under_way.has_group_change()) {
    return absl::AbortedError(absl::StrCat("expected_revision is ", request.expected_revision(),
                                           ", and another change of it is under way"));
  }
  return BodyOf(*job.registration, request, job.position + 1).status();
}

absl::StatusOr<v1::StepPlan> GroupChanges::Plan(const JobState& job,
                                                const Membership& membership) const {
  KAON_ASSIGN_OR_RETURN(v1::GroupChangeBody body,
                        BodyOf(*job.registration, pending_->request, job.position + 1));
  KAON_RETURN_IF_ERROR(CheckBegun(body, job, membership));
  v1::StepPlan plan;
  plan.set_job(job.registration->definition().name());
  *plan.mutable_group_change() = std::move(body);
  return plan;
}

Actions GroupChanges::End(const absl::Status& status, const JobState& job) {
  if (!pending_) return {};
  const Pending ended = *std::exchange(pending_, std::nullopt);
  ReplySetGroup reply;
  reply.call = ended.call;
  if (status.ok()) {
    reply.response = ResponseOf(ended.request, job);
  } else {
    reply.response = status;
  }
  return {std::move(reply)};
}

}  // namespace kaon::coordinator
