// The workers' side of the machine: Register, GetJob, Join, Begin, Await.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/job_settings.h"
#include "job/resolve.h"
#include "job/route_validation.h"
#include "job/settings.h"
#include "job/validation.h"
#include "proto/ballot.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/coordinator/machine/registration.h"
#include "server/coordinator/machine/rollback_choice.h"
#include "server/coordinator/machine/step_machine.h"
#include "server/mutation/mutation.h"

namespace kaon::coordinator {

namespace {

// Calls that may wait for one registration.
constexpr size_t kMaxRegistering = 64;

absl::Status MultiplierRefused(uint32_t rank, double multiplier, double agreed, uint64_t step) {
  return absl::InvalidArgumentError(absl::StrCat(
      "learning_rate_multiplier is ", multiplier, " from rank ", rank, ", the ranks agreed on ",
      agreed, " for step ", step, ": use the same on every rank"));
}

}  // namespace

std::string StepMachine::HolderHint() const {
  // The address may be that of an earlier life of this very coordinator.
  if (election_.holder_address() == options_.address) return "";
  return election_.holder_address();
}

absl::Status StepMachine::CheckHolder() const {
  if (IsHolder()) return absl::OkStatus();
  if (phase_ == Phase::kStandby && !HolderHint().empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "coordinator ", options_.address, " does not hold the shards, ", HolderHint(), " does"));
  }
  return absl::UnavailableError(
      absl::StrCat("coordinator ", options_.address, " does not hold the shards: ", PhaseText()));
}

bool StepMachine::RegistrationIsApplied() const {
  const bool applying = phase_ == Phase::kApplying;
  return registration_ && !(applying && record_->plan().has_registration()) &&
         !(applying && TakesBack(record_->plan()));
}

absl::Status StepMachine::CheckJob(absl::string_view job) const {
  if (!Mutated(Mutation::kRefusedCoordinatorAnswers)) KAON_RETURN_IF_ERROR(CheckHolder());
  if (!registration_) {
    if (!stopped_.ok()) return stopped_;
    return absl::NotFoundError(
        absl::StrCat("job \"", proto::Excerpt(job), "\": no job is registered"));
  }
  if (registration_->definition().name() != job) {
    return absl::NotFoundError(absl::StrCat("job \"", proto::Excerpt(job), "\": the job here is \"",
                                            registration_->definition().name(), "\""));
  }
  if (!RegistrationIsApplied()) {
    const char* what = record_->plan().has_rollback() ? "rolled back" : "registered";
    return absl::UnavailableError(absl::StrCat("job \"", job, "\" is being ", what));
  }
  if (IsRollingBack()) {
    return absl::UnavailableError(absl::StrCat("job \"", job, "\" is being rolled back"));
  }
  return absl::OkStatus();
}

absl::Status StepMachine::CheckHeard() const {
  for (int i = 0; i < shards_.size(); ++i) {
    // By then every other coordinator that hears the shard may have replaced this one (rule 7).
    if (shards_[i].silence <= 2 * options_.takeover) continue;
    return absl::UnavailableError(absl::StrCat("coordinator ", options_.address, ": shard ", i,
                                               " not heard for ",
                                               absl::FormatDuration(shards_[i].silence)));
  }
  return absl::OkStatus();
}

absl::Status StepMachine::CheckRunning(absl::string_view job) const {
  KAON_RETURN_IF_ERROR(CheckJob(job));
  KAON_RETURN_IF_ERROR(stopped_);
  return CheckHeard();
}

CoordinatorSnapshot StepMachine::Snapshot() const {
  CoordinatorSnapshot snapshot;
  snapshot.holder = IsHolder();
  snapshot.holder_address = IsHolder() ? options_.address : HolderHint();
  snapshot.ballot = ballot_;
  if (registration_) snapshot.job = Describe();
  snapshot.workers = membership_.Snapshot();
  for (WorkerSnapshot& worker : snapshot.workers) {
    const auto seen = grad_norms_.workers().find(worker.rank);
    if (seen == grad_norms_.workers().end()) continue;
    worker.grad_norm = seen->second.norm;
    worker.grad_norm_outliers = seen->second.outliers;
  }
  snapshot.phase = PhaseText();
  snapshot.shard_problems = ShardProblems();
  return snapshot;
}

v1::JobDescription StepMachine::Describe() const {
  v1::JobDescription description;
  *description.mutable_definition() = registration_->definition();
  *description.mutable_placement() = registration_->placement();
  description.set_timeline(timeline_);
  description.set_applied_step(applied_step_);
  description.set_weights_loaded(weights_loaded_);
  *description.mutable_requested() = registration_->requested();
  *description.mutable_changed() = registration_->changed();
  description.set_config_revision(config_revision_);
  for (const std::string& address : options_.shard_addresses) {
    description.add_shard_addresses(address);
  }
  if (!stopped_.ok()) description.set_stopped_reason(stopped_.ToString());
  return description;
}

// OK when the call waits in `registering_` or can be answered with the job.
absl::Status StepMachine::TryRegister(CallId call, const v1::JobDefinition& definition) {
  KAON_RETURN_IF_ERROR(CheckHolder());
  // For a moment: RESOURCE_EXHAUSTED would say that the job does not fit.
  if (registering_.size() >= kMaxRegistering) {
    return absl::UnavailableError(
        absl::StrCat(kMaxRegistering, " registrations are waiting already"));
  }
  if (registration_) {
    const std::string difference = FirstDifference(*registration_, definition);
    if (!difference.empty()) {
      // What is wrong with it comes first.
      KAON_RETURN_IF_ERROR(job::CheckJob(definition));
      if (DifferInWorkersAlone(*registration_, definition)) {
        return TakeWorkers(call, definition);
      }
      return absl::AlreadyExistsError(absl::StrCat("job \"", registration_->definition().name(),
                                                   "\" is registered and differs: ", difference));
    }
    if (!RegistrationIsApplied()) registering_.insert(call);
    return absl::OkStatus();
  }
  KAON_RETURN_IF_ERROR(stopped_);
  if (phase_ == Phase::kRound) {
    if (!FirstDifference(plan_.registration(), definition).empty()) {
      KAON_RETURN_IF_ERROR(job::CheckJob(definition));
      return absl::UnavailableError(absl::StrCat("job \"", plan_.job(), "\" is being registered"));
    }
    registering_.insert(call);
    return absl::OkStatus();
  }
  std::vector<v1::ShardState> states;
  for (const ShardView& view : shards_) states.push_back(view.state.value_or(v1::ShardState()));
  KAON_RETURN_IF_ERROR(CheckSameDurability(states));
  PlacementLimits limits;
  limits.num_shards = static_cast<int>(shards_.size());
  limits.shard_capacity_bytes = options_.shard_capacity_bytes;
  KAON_ASSIGN_OR_RETURN(v1::RegisterBody body, MakeRegistration(definition, limits));
  registering_.insert(call);
  v1::StepPlan plan;
  plan.set_job(body.definition().name());
  *plan.mutable_registration() = std::move(body);
  OpenRound(std::move(plan));
  return absl::OkStatus();
}

// A job that was just restored has the workers of its checkpoint until a trainer says which it has:
// workers belong to the job as it is registered now (ADR 0039). OK when the call waits for the
// entry that changes them.
absl::Status StepMachine::TakeWorkers(CallId call, const v1::JobDefinition& definition) {
  const v1::JobDefinition& job = registration_->definition();
  KAON_RETURN_IF_ERROR(stopped_);
  const bool joined = !membership_.Snapshot().empty();
  if (joined || !record_ || !record_->plan().has_restore()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "job \"", job.name(),
        "\" is registered with other workers: ", FirstDifference(*registration_, definition),
        "; to change them while it runs: kaonctl job set world_size=", definition.world_size()));
  }
  if (phase_ != Phase::kReady || restore_ || change_) {
    return absl::UnavailableError(absl::StrCat("job \"", job.name(), "\" is being changed"));
  }
  KAON_ASSIGN_OR_RETURN(
      v1::GroupChangeBody body,
      job::MakeGroupChange(*registration_, "", job::WorkerSettings(definition), position_ + 1));
  registering_.insert(call);
  v1::StepPlan plan;
  plan.set_job(job.name());
  *plan.mutable_group_change() = std::move(body);
  OpenRound(std::move(plan));
  return absl::OkStatus();
}

void StepMachine::Register(CallId call, const v1::RegisterJobRequest& request) {
  const absl::Status status = TryRegister(call, request.definition());
  if (!status.ok()) {
    actions_.push_back(ReplyRegister{call, status, IsHolder() ? "" : HolderHint()});
  } else if (registering_.count(call) == 0) {
    actions_.push_back(ReplyRegister{call, Describe(), ""});
  }
}

void StepMachine::AnswerRegistrations(const absl::Status& status) {
  for (CallId call : registering_) {
    if (status.ok()) {
      actions_.push_back(ReplyRegister{call, Describe(), ""});
    } else {
      actions_.push_back(ReplyRegister{call, status, IsHolder() ? "" : HolderHint()});
    }
  }
  registering_.clear();
}

void StepMachine::GetJob(CallId call, const v1::GetJobRequest& request) {
  absl::Status status = CheckJob(request.job());
  // As everywhere, a job that stopped is said to have stopped first.
  if (status.ok() && stopped_.ok()) status = CheckHeard();
  if (status.ok()) {
    actions_.push_back(ReplyGetJob{call, Describe(), ""});
  } else {
    actions_.push_back(ReplyGetJob{call, status, IsHolder() ? "" : HolderHint()});
  }
}

absl::StatusOr<v1::JoinWorkerResponse> StepMachine::TryJoin(const v1::JoinWorkerRequest& request) {
  KAON_RETURN_IF_ERROR(CheckRunning(request.job()));
  KAON_ASSIGN_OR_RETURN(v1::Attempt attempt, membership_.Join(request, ballot_));
  FailAwaitsOfOthers(request.rank(), attempt);
  watch_.Heard(request.rank());
  v1::JoinWorkerResponse response;
  *response.mutable_attempt() = std::move(attempt);
  response.set_process_nonce(request.process_nonce());
  response.set_timeline(timeline_);
  response.set_applied_step(applied_step_);
  response.set_weights_loaded(weights_loaded_);
  response.set_loss_scale(record_.has_value() ? record_->decision().next_loss_scale() : 1);
  return response;
}

void StepMachine::Join(CallId call, const v1::JoinWorkerRequest& request) {
  actions_.push_back(ReplyJoin{call, TryJoin(request), IsHolder() ? "" : HolderHint()});
}

absl::StatusOr<v1::BeginStepResponse> StepMachine::TryBegin(const v1::BeginStepRequest& request) {
  KAON_RETURN_IF_ERROR(CheckRunning(request.job()));
  KAON_RETURN_IF_ERROR(membership_.CheckBegin(request));
  const v1::JobDefinition& job = registration_->definition();
  KAON_RETURN_IF_ERROR(
      job::ValidateContributions(request.micro_batches(), job.parameters_size(), job.world_size()));
  watch_.Heard(request.rank());
  membership_.Regain(request.rank());
  // A plan with other rates would stop the job.
  if (request.has_learning_rate_multiplier() &&
      membership_.LastMultiplier(NextStep()) != request.learning_rate_multiplier()) {
    KAON_RETURN_IF_ERROR(
        job::ValidateMultiplier(registration_->definition().groups(), registration_->definition(),
                                registration_->placement(), request.learning_rate_multiplier()));
  }
  const uint64_t step = request.step();
  v1::BeginStepResponse response;
  if (step == NextStep()) {
    KAON_RETURN_IF_ERROR(membership_.Begin(request));
    MaybeOpenStepRound();
    // The last rank to begin has no AwaitStep yet that could tell it.
    const std::optional<double> agreed = membership_.LastMultiplier(step);
    if (agreed && step == NextStep() && !membership_.HasBegun(request.rank(), step)) {
      return MultiplierRefused(request.rank(), request.learning_rate_multiplier(), *agreed, step);
    }
    return response;
  }
  if (step > NextStep()) {
    // Rule 8: "A request above the applied step is UNAVAILABLE, never a rewind."
    return absl::UnavailableError(
        weights_loaded_
            ? absl::StrCat("step ", step, " begun, expecting ", NextStep())
            : absl::StrCat("step ", step, " begun, the initial weights (step 0) are not loaded"));
  }
  if (IsDecided(request.rank(), step)) {
    *response.mutable_record() = *step_record_;
    return response;
  }
  if (wanted_position_ > 0 && step + 1 == NextStep()) {
    return absl::UnavailableError(absl::StrCat("the record of step ", step, " is being read"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("step ", step, " begun, the newest applied step is ", applied_step_));
}

void StepMachine::Begin(CallId call, const v1::BeginStepRequest& request) {
  absl::StatusOr<v1::BeginStepResponse> response = TryBegin(request);
  actions_.push_back(ReplyBegin{call, std::move(response), IsHolder() ? "" : HolderHint()});
}

bool StepMachine::IsDecided(uint32_t rank, uint64_t step) const {
  if (!step_record_ || step_record_->plan().step().step() != step) return false;
  if (step != NextStep()) return true;
  // The newest record says that initial weights were refused: final for the rank that brought them,
  // unless it has begun again.
  return rank == 0 && !membership_.AllBegun(step);
}

absl::Status StepMachine::CheckAwait(const v1::AwaitStepRequest& request) const {
  KAON_RETURN_IF_ERROR(CheckRunning(request.job()));
  KAON_RETURN_IF_ERROR(membership_.CheckAttempt(request.rank(), request.attempt()));
  if (request.step() > NextStep()) {
    return absl::UnavailableError(
        absl::StrCat("step ", request.step(), " awaited, the next one is ", NextStep()));
  }
  // Between its BeginStep and this, the step may have been refused to it.
  if (request.step() == NextStep() && !IsDecided(request.rank(), request.step()) &&
      !membership_.HasBegun(request.rank(), request.step())) {
    return absl::UnavailableError(absl::StrCat("step ", request.step(), " awaited, rank ",
                                               request.rank(),
                                               " has not begun it: begin it again"));
  }
  const bool is_read = wanted_position_ > 0 && request.step() + 1 == NextStep();
  if (request.step() != NextStep() && !is_read && !IsDecided(request.rank(), request.step())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step ", request.step(), " awaited, the newest applied step is ", applied_step_));
  }
  return absl::OkStatus();
}

void StepMachine::Await(CallId call, const v1::AwaitStepRequest& request) {
  const absl::Status status = CheckAwait(request);
  if (!status.ok()) {
    actions_.push_back(AwaitFailed{call, status, IsHolder() ? "" : HolderHint()});
    return;
  }
  if (IsDecided(request.rank(), request.step())) {
    actions_.push_back(AwaitEvent{call, step_record_.ForWorkers(), true});
    return;
  }
  // One waiting stream per worker bounds their number; a repeated call means that the older stream
  // broke.
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    if (it->second.rank != request.rank()) {
      ++it;
      continue;
    }
    actions_.push_back(AwaitFailed{
        it->first, absl::CancelledError("a later AwaitStep of this worker replaces this one"), ""});
    it = waiters_.erase(it);
  }
  const Waiter waiter{request.rank(), request.attempt(), request.step()};
  waiters_[call] = waiter;
  AnnouncePlan(call, waiter);
}

// Says that shards were sent the plan; a shard that does not have it yet answers pushes
// UNAVAILABLE.
void StepMachine::AnnouncePlan(CallId call, const Waiter& waiter) {
  if (phase_ != Phase::kRound || !plan_.has_step() || plan_.step().step() != waiter.step) return;
  // Ranks that take no part, or whose attempt was replaced since, have nothing to push.
  const auto& members = plan_.step().members();
  const auto member = std::lower_bound(
      members.begin(), members.end(), waiter.rank,
      [](const v1::Member& member, uint32_t rank) { return member.rank() < rank; });
  if (member == members.end() || member->rank() != waiter.rank ||
      proto::Compare(member->attempt(), waiter.attempt) != 0) {
    return;
  }
  v1::StepEvent event;
  *event.mutable_planned()->mutable_ballot() = plan_.ballot();
  event.mutable_planned()->set_round(plan_.round());
  actions_.push_back(AwaitEvent{call, Share(std::move(event)), false});
}

// Ends every Await that the newest step's record answers, or makes pointless.
void StepMachine::AnnounceRecord() {
  if (!step_record_) return;
  const uint64_t decided_step = step_record_->plan().step().step();
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const bool begun_anew = it->second.step == NextStep() && membership_.AllBegun(NextStep());
    if (it->second.step > decided_step || begun_anew) {
      ++it;
      continue;
    }
    if (it->second.step == decided_step) {
      actions_.push_back(AwaitEvent{it->first, step_record_.ForWorkers(), true});
    } else {
      actions_.push_back(AwaitFailed{
          it->first,
          absl::FailedPreconditionError(absl::StrCat(
              "step ", it->second.step, " awaited, the newest applied step is ", decided_step)),
          ""});
    }
    it = waiters_.erase(it);
  }
}

void StepMachine::FailAwaits(const absl::Status& status) {
  for (const auto& [call, waiter] : waiters_) {
    actions_.push_back(AwaitFailed{call, status, IsHolder() ? "" : HolderHint()});
  }
  waiters_.clear();
}

void StepMachine::FailAwaitsOfOthers(uint32_t rank, const v1::Attempt& current) {
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    if (it->second.rank != rank || proto::Compare(it->second.attempt, current) == 0) {
      ++it;
      continue;
    }
    actions_.push_back(AwaitFailed{
        it->first, absl::AbortedError(absl::StrCat("rank ", rank, " was taken by another process")),
        ""});
    it = waiters_.erase(it);
  }
}

void StepMachine::RefuseMultipliers(const Membership::Agreed& agreed) {
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const auto refused = agreed.refused.find(it->second.rank);
    if (refused == agreed.refused.end()) {
      ++it;
      continue;
    }
    actions_.push_back(AwaitFailed{
        it->first,
        MultiplierRefused(refused->first, refused->second, agreed.multiplier, NextStep()), ""});
    it = waiters_.erase(it);
  }
}

void StepMachine::CancelCall(CallId call) {
  waiters_.erase(call);
  registering_.erase(call);
  if (change_ && change_->call == call) change_.reset();
  if (restore_ && restore_->call == call) restore_.reset();
  if (run_ && run_->call() == call) run_->ForgetCall();
}

std::vector<CoordinatorAction> StepMachine::TakeActions() { return std::exchange(actions_, {}); }

}  // namespace kaon::coordinator
