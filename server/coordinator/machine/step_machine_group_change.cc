// The admins' side of the machine: SetGroup, of groups and of the job itself, and what a log entry
// that is no step means for those who still ask for the step before it.
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/route_validation.h"
#include "job/settings.h"
#include "job/validation.h"
#include "job/workers.h"
#include "proto/status_macros.h"
#include "server/coordinator/machine/rollback_choice.h"
#include "server/coordinator/machine/step_machine.h"

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

absl::Status OtherRevision(const v1::RegisterBody& job, const v1::SetGroupRequest& request,
                           uint64_t revision) {
  // So that a caller whose answer was lost, with the coordinator that would have given it, can
  // tell.
  const absl::StatusOr<v1::GroupChangeBody> change = BodyOf(job, request, revision);
  const bool in_place = change.ok() && job::IsInPlace(job, *change);
  return absl::AbortedError(absl::StrCat("expected_revision is ", request.expected_revision(),
                                         ", config_revision is ", revision,
                                         in_place ? "; the change is in place" : ""));
}

}  // namespace

bool StepMachine::GroupChangeIsOpen() const {
  return (phase_ == Phase::kRound && plan_.has_group_change()) ||
         (phase_ == Phase::kApplying && record_ && record_->plan().has_group_change());
}

bool StepMachine::IsRepeated(const v1::SetGroupRequest& request) const {
  if (request.request_id() == 0) return false;
  if (change_) return change_->request.request_id() == request.request_id();
  // Its caller is gone.
  const v1::StepPlan& open = phase_ == Phase::kRound || !record_ ? plan_ : record_->plan();
  return GroupChangeIsOpen() && open.group_change().request_id() == request.request_id();
}

// OK when the call waits in `change_`.
absl::Status StepMachine::TrySetGroup(CallId call, const v1::SetGroupRequest& request) {
  const bool any = request.job().empty() && registration_;
  KAON_RETURN_IF_ERROR(CheckRunning(any ? registration_->definition().name() : request.job()));
  if (IsRepeated(request)) {
    AnswerGroupChange(absl::UnavailableError("the same request was made again"));
    change_ = PendingChange{call, request};
    return absl::OkStatus();
  }
  if (request.expected_revision() != config_revision_) {
    return OtherRevision(*registration_, request, config_revision_);
  }
  if (change_ || GroupChangeIsOpen()) {
    return absl::AbortedError(absl::StrCat("expected_revision is ", request.expected_revision(),
                                           ", and another change of it is under way"));
  }
  KAON_RETURN_IF_ERROR(BodyOf(*registration_, request, position_ + 1).status());
  change_ = PendingChange{call, request};
  // A step may wait for a worker that does not come back: a change of the workers does not wait for
  // the step. Its PREPAREs are not all there, or it would be decided; it is planned anew behind the
  // change.
  const bool waits = request.group().empty() && phase_ == Phase::kRound && plan_.has_step();
  if (phase_ == Phase::kReady || waits) OpenGroupChange();
  return absl::OkStatus();
}

void StepMachine::SetGroup(CallId call, const v1::SetGroupRequest& request) {
  const absl::Status status = TrySetGroup(call, request);
  if (status.ok()) return;
  actions_.push_back(ReplySetGroup{call, status, IsHolder() ? "" : HolderHint(), config_revision_});
}

bool StepMachine::OpenGroupChange() {
  if (!change_ || !stopped_.ok()) return false;
  const v1::JobDefinition& job = registration_->definition();
  absl::StatusOr<v1::GroupChangeBody> body =
      BodyOf(*registration_, change_->request, position_ + 1);
  const absl::Status status = body.ok() ? CheckBegun(*body) : body.status();
  if (!status.ok()) {
    AnswerGroupChange(status);
    return false;
  }
  v1::StepPlan plan;
  plan.set_job(job.name());
  *plan.mutable_group_change() = *std::move(body);
  OpenRound(std::move(plan));
  return true;
}

void StepMachine::AnswerGroupChange(const absl::Status& status) {
  if (!change_) return;
  const PendingChange change = *std::exchange(change_, std::nullopt);
  ReplySetGroup reply;
  reply.call = change.call;
  reply.holder_address = IsHolder() ? "" : HolderHint();
  if (!status.ok()) {
    reply.response = status;
  } else {
    v1::SetGroupResponse response;
    response.set_config_revision(config_revision_);
    for (const v1::ParameterGroup& group : registration_->definition().groups()) {
      if (group.name() == change.request.group()) *response.mutable_group() = group;
    }
    if (change.request.group().empty()) {
      *response.mutable_workers() = job::WorkersOf(registration_->definition());
    }
    reply.response = std::move(response);
  }
  actions_.push_back(std::move(reply));
}

// Whether the job can take the shares that are begun, after the change.
absl::Status StepMachine::CheckBegun(const v1::GroupChangeBody& change) const {
  const v1::JobDefinition& job = registration_->definition();
  const uint32_t world_size = job::WorldSizeAfter(job, change);
  for (const v1::Member& member : membership_.MembersOf(NextStep())) {
    if (member.rank() >= world_size) continue;
    KAON_RETURN_IF_ERROR(
        job::ValidateContributions(member.micro_batches(), job.parameters_size(), world_size));
  }
  for (const double multiplier : membership_.BegunMultipliers(NextStep())) {
    KAON_RETURN_IF_ERROR(
        job::ValidateMultiplier(change.groups().empty() ? job.groups() : change.groups(), job,
                                registration_->placement(), multiplier));
  }
  return absl::OkStatus();
}

void StepMachine::ForgetSharesOutOfRange() {
  const absl::Status status = CheckBegun({});
  if (status.ok()) return;
  // The plan would stop the job; beginning again tells the worker why.
  membership_.ForgetBegun();
  FailAwaits(absl::UnavailableError(status.message()));
}

// Those of ranks that the job no longer has.
void StepMachine::DismissWorkers() {
  membership_.Resize(registration_->definition().world_size());
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const absl::Status status = membership_.CheckRank(it->second.rank);
    if (!status.ok()) actions_.push_back(AwaitFailed{it->first, status, ""});
    it = status.ok() ? std::next(it) : waiters_.erase(it);
  }
}

void StepMachine::FindStepRecord() {
  wanted_position_ = 0;
  if (!record_ || record_->plan().has_step()) {
    step_record_ = record_;
    return;
  }
  if (TakesBack(record_->plan())) {
    // Nothing was stepped in this timeline yet.
    step_record_.reset();
    return;
  }
  const bool known = step_record_ && applied_step_ > 0 &&
                     step_record_->plan().timeline() == timeline_ &&
                     step_record_->plan().step().kind() == v1::STEP_KIND_TRAIN &&
                     step_record_->plan().step().step() == applied_step_;
  if (known) return;
  step_record_.reset();
  wanted_position_ = position_ - 1;
  ReadStepRecord();
}

void StepMachine::ReadStepRecord() {
  if (wanted_position_ == 0 || !IsHolder()) return;
  // Decided records are the same on every shard; one that is away is asked again.
  for (int i = 0; i < shards_.size(); ++i) {
    if (!shards_[i].connected || !shards_[i].state ||
        shards_[i].state->applied_position() < wanted_position_) {
      continue;
    }
    actions_.push_back(ReadRecord{i, wanted_position_});
    return;
  }
}

void StepMachine::OnRecordRead(uint64_t position, const absl::StatusOr<v1::StepRecord>& record) {
  // An answer that failed is asked for again at the next heartbeat.
  if (position != wanted_position_ || !IsHolder() || !record.ok()) return;
  const v1::StepPlan& plan = record->plan();
  if (plan.position() == position && plan.has_group_change()) {
    --wanted_position_;
    return ReadStepRecord();
  }
  wanted_position_ = 0;
  if (plan.position() != position) {
    // Those who wait for it are told so when they ask again.
    FailAwaits(absl::UnavailableError("the record of the newest step is not kept any more"));
  } else if (plan.has_step()) {
    step_record_ = DecidedRecord(*record);
    AnnounceRecord();
  }
}

}  // namespace kaon::coordinator
