#include "server/coordinator/machine/step_results.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ballot.h"
#include "proto/status_macros.h"
#include "server/coordinator/machine/rollbacks.h"

namespace kaon::coordinator {

namespace {

absl::Status NotTheNewest(uint64_t step, const char* asked, uint64_t newest) {
  return absl::FailedPreconditionError(
      absl::StrCat("step ", step, " ", asked, ", the newest applied step is ", newest));
}

Shared<v1::StepEvent> PlannedEvent(const v1::StepPlan& plan) {
  v1::StepEvent event;
  *event.mutable_planned()->mutable_ballot() = plan.ballot();
  event.mutable_planned()->set_round(plan.round());
  return Share(std::move(event));
}

}  // namespace

template <typename ResultOf>
Actions StepResults::EndSome(const ResultOf& result_of) {
  Actions ended;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const std::optional<absl::Status> result = result_of(it->second);
    if (!result) {
      ++it;
      continue;
    }
    if (result->ok()) {
      ended.push_back(AwaitEvent{it->first, newest_.ForWorkers(), true});
    } else {
      ended.push_back(AwaitFailed{it->first, *result, ""});
    }
    it = waiters_.erase(it);
  }
  return ended;
}

void StepResults::Find(const JobState& job) {
  wanted_position_ = 0;
  const v1::StepPlan& plan = job.NewestPlan();
  if (!job.record || plan.has_step()) {
    newest_ = job.record;
    return;
  }
  if (ReplacesState(plan)) {
    // The new timeline, or the next job, has no step yet.
    newest_.reset();
    return;
  }
  const bool known = newest_ && job.applied_step > 0 &&
                     newest_->plan().timeline() == job.timeline &&
                     newest_->plan().step().kind() == v1::STEP_KIND_TRAIN &&
                     newest_->plan().step().step() == job.applied_step;
  if (known) return;
  newest_.reset();
  wanted_position_ = job.position - 1;
}

Actions StepResults::OnRead(const v1::StepRecord& record) {
  const v1::StepPlan& plan = record.plan();
  if (plan.position() == wanted_position_ && plan.has_group_change()) {
    --wanted_position_;
    return {};
  }
  const uint64_t wanted = std::exchange(wanted_position_, 0);
  if (plan.position() != wanted) {
    // Workers that call again get FAILED_PRECONDITION.
    return Fail(absl::UnavailableError("the record of the newest step is not kept any more"));
  }
  if (plan.has_step()) newest_ = DecidedRecord(record);
  return {};
}

void StepResults::Decided(const DecidedRecord& record) {
  newest_ = record;
  wanted_position_ = 0;
}

bool StepResults::IsDecided(uint32_t rank, uint64_t step, const JobState& job,
                            const Membership& membership) const {
  if (!newest_ || newest_->plan().step().step() != step) return false;
  if (step != job.NextStep()) return true;
  // The newest record says that initial weights were refused. It is final for the rank that brought
  // them, unless that rank has begun again.
  return rank == 0 && !membership.AllBegun(step);
}

absl::StatusOr<v1::BeginStepResponse> StepResults::AnswerBegin(uint32_t rank, uint64_t step,
                                                               const JobState& job,
                                                               const Membership& membership) const {
  if (step > job.NextStep()) {
    // Rule 8: "A request above the applied step is UNAVAILABLE, never a rewind."
    return absl::UnavailableError(
        job.weights_loaded
            ? absl::StrCat("step ", step, " begun, expecting ", job.NextStep())
            : absl::StrCat("step ", step, " begun, the initial weights (step 0) are not loaded"));
  }
  if (IsDecided(rank, step, job, membership)) {
    v1::BeginStepResponse response;
    *response.mutable_record() = *newest_;
    return response;
  }
  if (wanted_position_ > 0 && step + 1 == job.NextStep()) {
    return absl::UnavailableError(absl::StrCat("the record of step ", step, " is being read"));
  }
  return NotTheNewest(step, "begun", job.applied_step);
}

absl::Status StepResults::CheckAwait(const v1::AwaitStepRequest& request, const JobState& job,
                                     const Membership& membership) const {
  const uint32_t rank = request.rank();
  const uint64_t step = request.step();
  const uint64_t next = job.NextStep();
  KAON_RETURN_IF_ERROR(membership.CheckAttempt(rank, request.attempt()));
  if (step > next) {
    return absl::UnavailableError(absl::StrCat("step ", step, " awaited, the next one is ", next));
  }
  if (IsDecided(rank, step, job, membership)) return absl::OkStatus();
  // The step may have been refused to the rank after its BeginStep.
  if (step == next && !membership.HasBegun(rank, step)) {
    return absl::UnavailableError(
        absl::StrCat("step ", step, " awaited, rank ", rank, " has not begun it: begin it again"));
  }
  const bool is_read = wanted_position_ > 0 && step + 1 == next;
  if (step != next && !is_read) return NotTheNewest(step, "awaited", job.applied_step);
  return absl::OkStatus();
}

Actions StepResults::Await(CallId call, const v1::AwaitStepRequest& request,
                           const v1::StepPlan& open, const JobState& job,
                           const Membership& membership) {
  const absl::Status status = CheckAwait(request, job, membership);
  if (!status.ok()) return {AwaitFailed{call, status, ""}};
  const uint32_t rank = request.rank();
  if (IsDecided(rank, request.step(), job, membership)) {
    return {AwaitEvent{call, newest_.ForWorkers(), true}};
  }
  // At most one stream a worker is open. A second call means that the first stream broke.
  Actions actions = EndSome([rank](const Waiter& waiter) -> std::optional<absl::Status> {
    if (waiter.rank != rank) return std::nullopt;
    return absl::CancelledError("a later AwaitStep of this worker replaces this one");
  });
  const Waiter& waiter = waiters_[call] = {rank, request.attempt(), request.step()};
  if (IsMember(open, waiter)) actions.push_back(AwaitEvent{call, PlannedEvent(open), false});
  return actions;
}

std::set<uint32_t> StepResults::RanksThatAwait(uint64_t step) const {
  std::set<uint32_t> ranks;
  for (const auto& [call, waiter] : waiters_) {
    if (waiter.step == step) ranks.insert(waiter.rank);
  }
  return ranks;
}

std::set<uint32_t> StepResults::RanksThatAwaitAny() const {
  std::set<uint32_t> ranks;
  for (const auto& [call, waiter] : waiters_) ranks.insert(waiter.rank);
  return ranks;
}

bool StepResults::IsMember(const v1::StepPlan& plan, const Waiter& waiter) {
  if (!plan.has_step() || plan.step().step() != waiter.step) return false;
  const auto& members = plan.step().members();
  const auto member = std::lower_bound(
      members.begin(), members.end(), waiter.rank,
      [](const v1::Member& member, uint32_t rank) { return member.rank() < rank; });
  return member != members.end() && member->rank() == waiter.rank &&
         proto::Compare(member->attempt(), waiter.attempt) == 0;
}

Actions StepResults::AnnouncePlan(const v1::StepPlan& plan) const {
  const Shared<v1::StepEvent> planned = PlannedEvent(plan);
  Actions events;
  for (const auto& [call, waiter] : waiters_) {
    if (IsMember(plan, waiter)) events.push_back(AwaitEvent{call, planned, false});
  }
  return events;
}

Actions StepResults::AnnounceRecord(const JobState& job, const Membership& membership) {
  if (!newest_) return {};
  const uint64_t decided = newest_->plan().step().step();
  const uint64_t next = job.NextStep();
  return EndSome([&](const Waiter& waiter) -> std::optional<absl::Status> {
    const bool begun_anew = waiter.step == next && membership.AllBegun(next);
    if (waiter.step > decided || begun_anew) return std::nullopt;
    if (waiter.step == decided) return absl::OkStatus();
    return NotTheNewest(waiter.step, "awaited", decided);
  });
}

Actions StepResults::Fail(const absl::Status& status) {
  return EndSome([&](const Waiter&) { return std::make_optional(status); });
}

Actions StepResults::FailOthers(uint32_t rank, const v1::Attempt& current) {
  return EndSome([&](const Waiter& waiter) -> std::optional<absl::Status> {
    if (waiter.rank != rank || proto::Compare(waiter.attempt, current) == 0) return std::nullopt;
    return RankTaken(rank);
  });
}

Actions StepResults::FailDismissed(const Membership& membership) {
  return EndSome([&](const Waiter& waiter) -> std::optional<absl::Status> {
    const absl::Status status = membership.CheckRank(waiter.rank);
    if (status.ok()) return std::nullopt;
    return status;
  });
}

Actions StepResults::RefuseMultipliers(const Membership::Agreed& agreed, uint64_t step) {
  return EndSome([&](const Waiter& waiter) -> std::optional<absl::Status> {
    const auto refused = agreed.refused.find(waiter.rank);
    if (refused == agreed.refused.end()) return std::nullopt;
    return MultipliersRefused(refused->first, refused->second, agreed.multipliers, step);
  });
}

}  // namespace kaon::coordinator
