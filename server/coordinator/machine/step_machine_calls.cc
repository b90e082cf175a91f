// The machine's side towards workers, and people who ask for its status.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/job_settings.h"
#include "job/resolve.h"
#include "job/route_validation.h"
#include "job/settings.h"
#include "job/validation.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/config/loss_remedy.h"
#include "server/coordinator/machine/entry_name.h"
#include "server/coordinator/machine/registration.h"
#include "server/coordinator/machine/rollbacks.h"
#include "server/coordinator/machine/step_machine.h"
#include "server/mutation/mutation.h"

namespace kaon::coordinator {

namespace {

// Upper bound on the calls that wait for one registration.
constexpr size_t kMaxRegistering = 64;

}  // namespace

std::string StepMachine::HolderHint() const {
  // The address may be that of an earlier process of this very coordinator.
  if (election_.holder_address() == options_.address) return "";
  return election_.holder_address();
}

absl::Status StepMachine::CheckHolder() const {
  if (IsHolder()) return absl::OkStatus();
  if (phase_ == Phase::kStandby && !HolderHint().empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "coordinator ", options_.address, " does not hold the shards, ", HolderHint(), " does"));
  }
  return absl::UnavailableError(absl::StrCat("coordinator ", options_.address,
                                             " does not hold the shards: ", PhaseText(Facts())));
}

absl::Status StepMachine::CheckJob(absl::string_view job) const {
  if (!Mutated(Mutation::kRefusedCoordinatorAnswers)) KAON_RETURN_IF_ERROR(CheckHolder());
  if (!job_.registration) {
    if (!stopped_.ok()) return stopped_;
    if (!job_.DeletedJob().empty() && job == job_.DeletedJob()) return config::JobWasDeleted(job);
    return absl::NotFoundError(
        absl::StrCat("job \"", proto::Excerpt(job), "\": no job is registered"));
  }
  const std::string& name = job_.registration->definition().name();
  if (name != job) {
    return absl::NotFoundError(
        absl::StrCat("job \"", proto::Excerpt(job), "\": the job here is \"", name, "\""));
  }
  if (IsBeingRegistered()) {
    const char* what = job_.record->plan().has_rollback() ? "rolled back" : "registered";
    return absl::UnavailableError(absl::StrCat("job \"", job, "\" is being ", what));
  }
  if (OpenPlan().has_rollback()) {
    return absl::UnavailableError(absl::StrCat("job \"", job, "\" is being rolled back"));
  }
  return absl::OkStatus();
}

bool StepMachine::IsBeingRegistered() const {
  const v1::StepPlan& newest = job_.NewestPlan();
  return phase_ == Phase::kApplying && (newest.has_registration() || TakesBack(newest));
}

absl::Status StepMachine::CheckHeard() const {
  for (int i = 0; i < shards_.size(); ++i) {
    // Another coordinator that hears the shard may have replaced this one by now (rule 7).
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

absl::Status StepMachine::CheckAdmin(const std::string& job) const {
  const bool any = job.empty() && job_.registration;
  return CheckRunning(any ? job_.registration->definition().name() : job);
}

StatusFacts StepMachine::Facts() const {
  StatusFacts facts{phase_,      stopped_, HolderHint(), options_.takeover,       shards_, job_,
                    membership_, plan_,    {},           requests_.drains.shard()};
  if (phase_ != Phase::kRound) return facts;
  const std::set<uint32_t> there = results_.RanksThatAwait(plan_.step().step());
  for (const v1::Member& member : plan_.step().members()) {
    if (there.count(member.rank()) == 0) facts.absent.push_back(member.rank());
  }
  return facts;
}

CoordinatorSnapshot StepMachine::Snapshot() const {
  CoordinatorSnapshot snapshot;
  snapshot.holder = IsHolder();
  snapshot.holder_address = IsHolder() ? options_.address : HolderHint();
  snapshot.ballot = ballot_;
  if (job_.registration) snapshot.job = Describe();
  snapshot.config_revision = job_.config_revision;
  snapshot.workers = membership_.Snapshot();
  const std::set<uint32_t> waiting = results_.RanksThatAwaitAny();
  for (WorkerSnapshot& worker : snapshot.workers) {
    worker.calls = watch_.calls(worker.rank);
    worker.awaits = waiting.count(worker.rank) > 0;
    const auto seen = grad_norms_.workers().find(worker.rank);
    if (seen == grad_norms_.workers().end()) continue;
    worker.grad_norm = seen->second.norm;
    worker.grad_norm_outliers = seen->second.outliers;
  }
  const StatusFacts facts = Facts();
  snapshot.phase = PhaseText(facts);
  snapshot.shard_problems = ShardProblems(facts);
  return snapshot;
}

v1::JobDescription StepMachine::Describe() const {
  v1::JobDescription description = job_.Describe();
  for (const std::string& address : options_.shard_addresses) {
    description.add_shard_addresses(address);
  }
  if (!stopped_.ok()) description.set_stopped_reason(stopped_.ToString());
  return description;
}

absl::StatusOr<v1::JobDescription> StepMachine::DescribeIf(const absl::Status& status) const {
  if (!status.ok()) return status;
  return Describe();
}

// Returns OK if the call waits in `registering_` or can be answered with the job.
absl::Status StepMachine::TryRegister(CallId call, const v1::JobDefinition& definition) {
  KAON_RETURN_IF_ERROR(CheckHolder());
  // UNAVAILABLE, as calls wait for a moment only. RESOURCE_EXHAUSTED says that a job does not fit.
  if (registering_.size() >= kMaxRegistering) {
    return absl::UnavailableError(
        absl::StrCat(kMaxRegistering, " registrations are waiting already"));
  }
  if (job_.registration) {
    const std::string difference = comparison_.FirstDifference(*job_.registration, definition);
    if (!difference.empty()) {
      // Errors of the definition come first.
      KAON_RETURN_IF_ERROR(job::CheckJob(definition));
      if (DifferInWorkersAlone(*job_.registration, definition)) {
        return TakeWorkers(call, definition);
      }
      const std::string& name = job_.registration->definition().name();
      return absl::AlreadyExistsError(absl::StrCat(
          "job \"", name, "\" is registered and differs: ", difference,
          name == definition.name() ? "" : "; to replace it: kaonctl job delete " + name));
    }
    if (IsBeingRegistered()) registering_.insert(call);
    return absl::OkStatus();
  }
  KAON_RETURN_IF_ERROR(stopped_);
  if (phase_ == Phase::kApplying) {
    return absl::UnavailableError(absl::StrCat("job \"", job_.DeletedJob(), "\" is being deleted"));
  }
  if (phase_ == Phase::kRound) {
    if (!FirstDifference(plan_.registration(), definition).empty()) {
      KAON_RETURN_IF_ERROR(job::CheckJob(definition));
      return absl::UnavailableError(absl::StrCat("job \"", plan_.job(), "\" is being registered"));
    }
    registering_.insert(call);
    return absl::OkStatus();
  }
  const std::vector<v1::ShardState> states = StatesOf(shards_);
  KAON_RETURN_IF_ERROR(CheckSameDurability(states));
  KAON_ASSIGN_OR_RETURN(v1::RegisterBody body, MakeRegistration(definition, limits_));
  if (job_.position > 0) body.set_first_timeline(job_.timeline);
  registering_.insert(call);
  v1::StepPlan plan;
  plan.set_job(body.definition().name());
  *plan.mutable_registration() = std::move(body);
  OpenRound(std::move(plan));
  return absl::OkStatus();
}

// A restored job has the workers of its checkpoint until a trainer registers: workers belong to the
// job as it is registered now (ADR 0039). Returns OK if the call waits for the entry that changes
// them.
absl::Status StepMachine::TakeWorkers(CallId call, const v1::JobDefinition& definition) {
  const std::string& name = job_.registration->definition().name();
  KAON_RETURN_IF_ERROR(stopped_);
  const bool joined = !membership_.Snapshot().empty();
  if (joined || !job_.NewestPlan().has_restore()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "job \"", name,
        "\" is registered with other workers: ", FirstDifference(*job_.registration, definition),
        "; to change them while it runs: kaonctl job set world_size=", definition.world_size()));
  }
  if (phase_ != Phase::kReady || requests_.restores.waits() || requests_.changes.waits()) {
    return absl::UnavailableError(absl::StrCat("job \"", name, "\" is being changed"));
  }
  v1::StepPlan plan;
  plan.set_job(name);
  KAON_ASSIGN_OR_RETURN(
      *plan.mutable_group_change(),
      job::MakeGroupChange(*job_.registration, "",
                           job::WorkerSettings(definition, job_.registration->definition()),
                           job_.position + 1));
  registering_.insert(call);
  OpenRound(std::move(plan));
  return absl::OkStatus();
}

void StepMachine::Register(CallId call, const v1::RegisterJobRequest& request) {
  const absl::Status status = TryRegister(call, request.definition());
  if (registering_.count(call) == 0) Do(ReplyRegister{call, DescribeIf(status), ""});
}

void StepMachine::AnswerRegistrations(const absl::Status& status) {
  for (CallId call : registering_) Do(ReplyRegister{call, DescribeIf(status), ""});
  registering_.clear();
}

void StepMachine::GetJob(CallId call, const v1::GetJobRequest& request) {
  absl::Status status = CheckJob(request.job());
  // Callers learn first that a job stopped, and why.
  if (status.ok() && stopped_.ok()) status = CheckHeard();
  Do(ReplyGetJob{call, DescribeIf(status), ""});
}

absl::StatusOr<v1::JoinWorkerResponse> StepMachine::TryJoin(const v1::JoinWorkerRequest& request) {
  KAON_RETURN_IF_ERROR(CheckRunning(request.job()));
  if (request.timeline() != 0 && request.timeline() < job_.registration->first_timeline()) {
    return config::JobWasDeleted(request.job());
  }
  // Each new attempt may cost the other workers a round.
  const bool anew = !membership_.KeepsAttempt(request);
  if (anew) KAON_RETURN_IF_ERROR(joins_.Check(request.rank()));
  KAON_RETURN_IF_ERROR(joins_.CheckLate(request.rank()));
  const bool was_whole = RoundIsWhole();
  KAON_ASSIGN_OR_RETURN(v1::Attempt attempt, membership_.Join(request, ballot_));
  if (anew) joins_.Note(request.rank());
  if (was_whole && !RoundIsWhole()) {
    deadline_.OnStep(job_.timeline, job_.NextStep());
    deadline_.OnRejoin(request.rank());
  }
  Do(results_.FailOthers(request.rank(), attempt));
  watch_.Heard(request.rank());
  v1::JoinWorkerResponse response;
  *response.mutable_attempt() = std::move(attempt);
  response.set_process_nonce(request.process_nonce());
  response.set_timeline(job_.timeline);
  response.set_applied_step(job_.applied_step);
  response.set_weights_loaded(job_.weights_loaded);
  response.set_loss_scale(job_.record ? job_.record->decision().next_loss_scale() : 1);
  return response;
}

void StepMachine::Join(CallId call, const v1::JoinWorkerRequest& request) {
  Do(ReplyJoin{call, TryJoin(request), ""});
}

absl::StatusOr<v1::BeginStepResponse> StepMachine::TryBegin(const v1::BeginStepRequest& request) {
  KAON_RETURN_IF_ERROR(CheckRunning(request.job()));
  KAON_RETURN_IF_ERROR(membership_.CheckBegin(request));
  // A lost rank takes part again by this call, too.
  KAON_RETURN_IF_ERROR(joins_.CheckLate(request.rank()));
  const v1::JobDefinition& job = job_.registration->definition();
  KAON_RETURN_IF_ERROR(
      job::ValidateContributions(request.micro_batches(), job.parameters_size(), job.world_size()));
  const uint32_t rank = request.rank();
  const uint64_t step = request.step();
  watch_.Heard(rank);
  membership_.Regain(rank);
  // A plan with rates out of range would stop the job.
  const job::RateMultipliers multipliers = MultipliersOf(request);
  if (membership_.LastMultipliers(job_.NextStep()) != multipliers) {
    KAON_RETURN_IF_ERROR(
        job::ValidateMultipliers(job.groups(), job, job_.registration->placement(), multipliers));
  }
  if (step != job_.NextStep()) return results_.AnswerBegin(rank, step, job_, membership_);
  KAON_RETURN_IF_ERROR(membership_.Begin(request));
  MaybeOpenStepRound();
  // The last rank to begin has no AwaitStep yet that could tell it.
  const std::optional<job::RateMultipliers> agreed = membership_.LastMultipliers(step);
  if (agreed && step == job_.NextStep() && !membership_.HasBegun(rank, step)) {
    return MultipliersRefused(rank, multipliers, *agreed, step);
  }
  return v1::BeginStepResponse();
}

void StepMachine::Begin(CallId call, const v1::BeginStepRequest& request) {
  Do(ReplyBegin{call, TryBegin(request), ""});
}

void StepMachine::Await(CallId call, const v1::AwaitStepRequest& request) {
  const absl::Status status = CheckRunning(request.job());
  if (!status.ok()) return Do(AwaitFailed{call, status, ""});
  Do(results_.Await(call, request, OpenPlan(), job_, membership_));
}

void StepMachine::CancelCall(CallId call) {
  results_.Cancel(call);
  registering_.erase(call);
  requests_.changes.Cancel(call);
  requests_.restores.Cancel(call);
  requests_.deletions.Cancel(call);
  checkpoints_.Cancel(call);
  requests_.drains.Cancel(call);
}

void StepMachine::ForgetSharesOutOfRange() {
  const absl::Status status = CheckBegun({}, job_, membership_);
  if (status.ok()) return;
  // The plan would stop the job; beginning again tells the worker why.
  membership_.ForgetBegun();
  Do(results_.Fail(absl::UnavailableError(status.message())));
}

}  // namespace kaon::coordinator
