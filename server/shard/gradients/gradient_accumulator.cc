#include "server/shard/gradients/gradient_accumulator.h"

#include <glog/logging.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "proto/ballot.h"
#include "proto/status_macros.h"
#include "server/config/loss_remedy.h"
#include "server/mutation/mutation.h"

namespace kaon::shard {

namespace {

void Run(const std::vector<std::function<void()>>& calls) {
  for (const auto& call : calls) call();
}

// Returns true if a member's contributions to one plan also count for the other.
bool IsUnchanged(const v1::Member& a, const v1::Member& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

}  // namespace

GradientAccumulator::GradientAccumulator(Options options) : options_(std::move(options)) {}

GradientAccumulator::~GradientAccumulator() { FreeSums(); }

void GradientAccumulator::Release(const std::string& job) {
  Calls calls;
  {
    MutexLock lock(mu_);
    EndStreamsLocked(config::JobWasDeleted(job), &calls);
    expected_.reset();
    deleted_job_ = job;
    plan_.reset();
    generation_ = 0;
    workers_.clear();
    for (auto& [id, parameter] : parameters_) {
      MutexLock parameter_lock(parameter->mu);
      parameter->generation = 0;
    }
    FreeSums();
  }
  Run(calls);
}

absl::Status GradientAccumulator::CheckWorkers(uint32_t world_size) const {
  const uint64_t workers = std::max<uint32_t>(1, world_size);
  const uint64_t window = options_.staging_bytes / workers;
  if (window >= proto::kMaxChunkBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("staging_bytes: ", options_.staging_bytes, " / ", workers, " workers = ", window,
                   " bytes each, expecting at least one chunk of ", proto::kMaxChunkBytes));
}

void GradientAccumulator::Adopt(const v1::RegisterBody& job) {
  reductions_ = ReductionsOf(job);
  MutexLock lock(mu_);
  world_size_ = job.definition().world_size();
}

void GradientAccumulator::ExpectStep(ExpectedStep expected) {
  Calls calls;
  {
    MutexLock lock(mu_);
    EndStreamsLocked(absl::FailedPreconditionError(absl::StrCat(
                         "the step pushed is decided, expecting step ", expected.step)),
                     &calls);
    expected_ = std::move(expected);
    plan_.reset();
    generation_ = 0;
    workers_.clear();
    for (auto& [id, parameter] : parameters_) {
      MutexLock parameter_lock(parameter->mu);
      parameter->generation = 0;
      parameter->sum->Discard();
    }
  }
  Run(calls);
}

bool GradientAccumulator::IsActiveLocked(const Parameter& parameter) const {
  // Frozen parameters are loaded once and then served unchanged ([T8]).
  return plan_.has_value() &&
         (!parameter.frozen || plan_->step().kind() == v1::STEP_KIND_LOAD_WEIGHTS);
}

size_t GradientAccumulator::KeptMembersLocked(const v1::StepPlan& plan) {
  // A finished sum is divided already, so it accepts no more contributions.
  if (!plan_.has_value() || folded_ || plan_->step().step() != plan.step().step() ||
      plan_->step().kind() != plan.step().kind()) {
    return 0;
  }
  int kept = 0;
  while (kept < plan.step().members_size() && kept < plan_->step().members_size() &&
         IsUnchanged(plan.step().members(kept), plan_->step().members(kept))) {
    ++kept;
  }
  // Rule 8: "A shard keeps its sums iff what is folded is a rank-order prefix of unchanged
  // attempts."
  for (auto& [id, parameter] : parameters_) {
    if (!IsActiveLocked(*parameter)) continue;
    MutexLock parameter_lock(parameter->mu);
    if (Mutated(Mutation::kOtherAttemptsKept)) continue;
    if (parameter->fold->finished()) return 0;
    if (parameter->fold->HasFoldedBeyond(static_cast<size_t>(kept))) return 0;
  }
  return static_cast<size_t>(kept);
}

void GradientAccumulator::Restamp(const v1::StepPlan& plan) {
  MutexLock lock(mu_);
  if (plan_.has_value()) plan_ = plan;
}

// After a worker restarts within a step, the plan has its new attempt and round + 1 (protocol.md
// 2.2). Sums are cleared unless rule 8 keeps them. Workers resend only to shards that cleared their
// sums. All shards use the attempt that the plan names.
void GradientAccumulator::BeginFolding(const v1::StepPlan& plan, uint64_t generation) {
  Calls calls;
  {
    MutexLock lock(mu_);
    EndStreamsLocked(absl::AbortedError(
                         absl::StrCat("step ", plan.step().step(), " was reopened as round ",
                                      plan.round(), " of ballot ", proto::ToString(plan.ballot()))),
                     &calls);
    // Accept no chunk of the old generation from here on: kept sums must not change.
    for (auto& [id, parameter] : parameters_) {
      MutexLock parameter_lock(parameter->mu);
      parameter->generation = 0;
    }
    const size_t kept = KeptMembersLocked(plan);
    plan_ = plan;
    generation_ = generation;
    folded_ = false;
    const std::vector<v1::Member> members(plan.step().members().begin(),
                                          plan.step().members().end());
    const bool loading = plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS;
    for (auto& [id, parameter] : parameters_) {
      if (!IsActiveLocked(*parameter)) continue;
      MutexLock parameter_lock(parameter->mu);
      if (kept > 0) {
        parameter->fold->ReplaceMembersFrom(kept, members);
      } else {
        parameter->sum->Discard();
        parameter->fold->Expect(members, loading);
      }
      parameter->announced = false;
      parameter->appended = false;
      parameter->generation = generation;
    }
    ResetWorkersLocked(kept);
    CheckFoldedLocked(&calls);
  }
  Run(calls);
}

void GradientAccumulator::ResetWorkersLocked(size_t kept) {
  std::map<uint32_t, Worker> before = std::move(workers_);
  workers_.clear();
  for (int i = 0; i < plan_->step().members_size(); ++i) {
    const v1::Member& member = plan_->step().members(i);
    Worker worker;
    if (static_cast<size_t>(i) < kept) worker = std::move(before[member.rank()]);
    worker.member = member;
    worker.stream.reset();
    worker.staged_bytes = 0;
    for (auto& [id, parameter] : parameters_) {
      MutexLock parameter_lock(parameter->mu);
      if (parameter->generation == generation_) {
        worker.staged_bytes += parameter->fold->StagedBytes(member.rank());
      }
    }
    workers_.emplace(member.rank(), std::move(worker));
  }
}

absl::Status GradientAccumulator::CheckOpenLocked(const v1::PushOpen& open) const {
  KAON_RETURN_IF_ERROR(closed_);
  if (!expected_.has_value() || open.job() != expected_->job) {
    const std::string held = expected_.has_value() ? expected_->job : "";
    return config::NotHeld(open.job(), "pushed", held, deleted_job_);
  }
  if (open.timeline() != expected_->timeline) {
    const std::string both =
        absl::StrCat("timeline ", open.timeline(), " pushed, expecting ", expected_->timeline);
    // A future timeline is UNAVAILABLE, like a future step: a shard that lost power may not know it
    // yet.
    return open.timeline() > expected_->timeline ? absl::UnavailableError(both)
                                                 : absl::FailedPreconditionError(both);
  }
  if (open.step() < expected_->step) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", open.step(), " pushed, expecting ", expected_->step));
  }
  // Rule 8: "A request above the applied step is UNAVAILABLE, never a rewind."
  if (open.step() > expected_->step || !plan_.has_value()) {
    return absl::UnavailableError(absl::StrCat("step ", open.step(), " pushed, expecting ",
                                               expected_->step,
                                               plan_.has_value() ? "" : ", which has no plan yet"));
  }
  // Accept no push for sums that a newer plan will clear: the worker would never resend it.
  const int by_ballot = proto::Compare(plan_->ballot(), open.ballot());
  if (by_ballot < 0 || (by_ballot == 0 && plan_->round() < open.round())) {
    return absl::UnavailableError(
        absl::StrCat("push for ballot ", proto::ToString(open.ballot()), " round ", open.round(),
                     ", this shard has accepted ballot ", proto::ToString(plan_->ballot()),
                     " round ", plan_->round()));
  }
  const auto worker = workers_.find(open.rank());
  if (worker == workers_.end()) {
    const std::string why =
        absl::StrCat("rank ", open.rank(), " pushed, which takes no part in step ", open.step());
    // A lost worker may take part in a later round, or it will hear of the decision.
    const bool is_one = open.rank() < world_size_;
    const bool trains = plan_->step().kind() == v1::STEP_KIND_TRAIN;
    return is_one && trains ? absl::AbortedError(why) : absl::InvalidArgumentError(why);
  }
  if (proto::Compare(open.attempt(), worker->second.member.attempt()) != 0 &&
      !Mutated(Mutation::kAnyAttemptPushes)) {
    return absl::AbortedError(absl::StrCat("attempt ", proto::ToString(open.attempt()), " of rank ",
                                           open.rank(), " pushed, the plan has ",
                                           proto::ToString(worker->second.member.attempt())));
  }
  return absl::OkStatus();
}

uint64_t GradientAccumulator::WindowLocked() const {
  return options_.staging_bytes / std::max<uint32_t>(1, world_size_);
}

uint64_t GradientAccumulator::RoomLocked(const Worker& worker) const {
  // 0 does not block a chunk whose turn has come: it needs no credit.
  return worker.staged_bytes >= WindowLocked() ? 0 : WindowLocked() - worker.staged_bytes;
}

absl::StatusOr<OpenPush> GradientAccumulator::Open(const v1::PushOpen& open,
                                                   PushCallbacks callbacks) {
  Calls calls;
  OpenPush result;
  {
    MutexLock lock(mu_);
    KAON_RETURN_IF_ERROR(CheckOpenLocked(open));
    if (open.lane_of() > 0) {
      KAON_ASSIGN_OR_RETURN(result.stream,
                            streams_.Join(open.lane_of(), open.rank(), std::move(callbacks)));
      return result;
    }
    Worker& worker = workers_[open.rank()];
    if (worker.stream.has_value()) {
      streams_.End(
          *worker.stream,
          absl::AbortedError(absl::StrCat("rank ", open.rank(), " opened another push stream")),
          &calls);
    }
    result.stream = streams_.Add(open.rank(), generation_, std::move(callbacks));
    worker.stream = result.stream;
    result.opened.set_push(result.stream);
    result.opened.set_finished(worker.finished);
    result.opened.set_credit_bytes(RoomLocked(worker));
    for (auto& [id, parameter] : parameters_) {
      MutexLock parameter_lock(parameter->mu);
      if (parameter->generation != generation_) continue;
      parameter->fold->AppendReceived(open.rank(), result.opened.mutable_received());
    }
  }
  Run(calls);
  return result;
}

absl::StatusOr<std::shared_ptr<GradientAccumulator::Parameter>>
GradientAccumulator::FindParameterLocked(uint32_t parameter_id) const {
  const auto found = parameters_.find(parameter_id);
  const v1::JobDefinition& job = registration_->definition();
  if (parameter_id >= static_cast<uint32_t>(job.parameters_size())) {
    return absl::InvalidArgumentError(absl::StrCat("parameter_id is ", parameter_id,
                                                   ", expecting 0 .. ", job.parameters_size() - 1));
  }
  const std::string& name = job.parameters(static_cast<int>(parameter_id)).name();
  if (found == parameters_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name, " is on shard ",
                     registration_->placement().parameters(static_cast<int>(parameter_id)).shard(),
                     ", not on this one"));
  }
  if (!IsActiveLocked(*found->second)) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name, " is frozen, it takes no gradient"));
  }
  return found->second;
}

void GradientAccumulator::ForgetRefusedLocked(uint32_t rank, PushStreamId stream, uint64_t bytes,
                                              Calls* calls) {
  Worker& worker = workers_[rank];
  worker.staged_bytes -= bytes;
  // The worker would read credit on this stream as acceptance of the chunk.
  if (worker.stream != stream) CreditLocked(worker, bytes, calls);
}

void GradientAccumulator::ReleaseLocked(const std::vector<ReleasedBytes>& released, Calls* calls) {
  // Send one credit per rank, however many chunks it covers.
  std::map<uint32_t, uint64_t> by_rank;
  for (const ReleasedBytes& bytes : released) by_rank[bytes.rank] += bytes.bytes;
  for (const auto& [rank, bytes] : by_rank) {
    Worker& worker = workers_[rank];
    CHECK_GE(worker.staged_bytes, bytes) << "rank " << rank;
    worker.staged_bytes -= bytes;
    CreditLocked(worker, bytes, calls);
  }
}

void GradientAccumulator::CreditLocked(const Worker& worker, uint64_t bytes, Calls* calls) {
  if (!worker.stream.has_value()) return;
  const auto stream = streams_.Find(*worker.stream);
  if (!stream.ok()) return;
  calls->push_back([credit = (*stream)->callbacks.on_credit, bytes] { credit(bytes); });
}

absl::Status GradientAccumulator::CheckAllSentLocked(uint32_t rank, const v1::PushFinish& finish) {
  std::set<uint32_t> missing;
  for (uint32_t id : finish.missing_parameters()) {
    KAON_ASSIGN_OR_RETURN(const std::shared_ptr<Parameter> parameter, FindParameterLocked(id));
    if (plan_->step().kind() == v1::STEP_KIND_LOAD_WEIGHTS) {
      MutexLock parameter_lock(parameter->mu);
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", parameter->fold->name(), ": its initial weights are finished as missing"));
    }
    missing.insert(id);
  }
  for (auto& [id, parameter] : parameters_) {
    if (!IsActiveLocked(*parameter)) continue;
    MutexLock parameter_lock(parameter->mu);
    KAON_RETURN_IF_ERROR(parameter->fold->CheckFinished(rank, missing.count(id) > 0));
  }
  return absl::OkStatus();
}

absl::Status GradientAccumulator::Finish(PushStreamId stream_id, const v1::PushFinish& finish) {
  Calls calls;
  {
    MutexLock lock(mu_);
    KAON_ASSIGN_OR_RETURN(const PushRegistry::Stream* const stream, streams_.Find(stream_id));
    if (stream->joined.has_value()) {
      if (finish.missing_parameters().empty() && !finish.has_loss()) return absl::OkStatus();
      return absl::InvalidArgumentError(
          "the finish of a lane has missing_parameters or a loss, expecting none");
    }
    const uint32_t rank = stream->rank;
    Worker& worker = workers_[rank];
    if (worker.finished) return absl::OkStatus();
    KAON_RETURN_IF_ERROR(CheckAllSentLocked(rank, finish));
    std::vector<ReleasedBytes> released;
    for (uint32_t id : finish.missing_parameters()) {
      Parameter& parameter = *parameters_.at(id);
      MutexLock parameter_lock(parameter.mu);
      tier::PageHold hold;
      if (parameter.fold->MarkMissingFolds()) {
        KAON_ASSIGN_OR_RETURN(hold, parameter.sum->PinForWrite());
      }
      parameter.fold->MarkMissing(rank, &released);
      CheckSettledLocked(parameter, generation_, &calls);
    }
    worker.finished = true;
    if (finish.has_loss()) worker.loss = finish.loss();
    ReleaseLocked(released, &calls);
    CheckFoldedLocked(&calls);
  }
  Run(calls);
  return absl::OkStatus();
}

void GradientAccumulator::CheckFoldedLocked(Calls* calls) {
  if (folded_) return;
  bool any_active = false;
  for (auto& [id, parameter] : parameters_) any_active = any_active || IsActiveLocked(*parameter);
  for (const auto& [rank, worker] : workers_) {
    // A shard with nothing to sum waits for no worker.
    if (any_active && !worker.finished) return;
  }
  // Every contribution arrived whole, so none still waits for an earlier one.
  folded_ = true;
  calls->push_back([this, generation = generation_] { options_.on_folded(generation); });
}

std::vector<uint32_t> GradientAccumulator::AwaitedRanks() const {
  MutexLock lock(mu_);
  std::vector<uint32_t> ranks;
  if (!plan_.has_value() || folded_) return ranks;
  for (const auto& [rank, worker] : workers_) {
    if (!worker.finished) ranks.push_back(rank);
  }
  return ranks;
}

void GradientAccumulator::EndStreamsLocked(const absl::Status& status, Calls* calls) {
  streams_.EndAll(status, calls);
  for (auto& [rank, worker] : workers_) worker.stream.reset();
}

void GradientAccumulator::Close(PushStreamId stream_id) {
  Calls calls;
  {
    MutexLock lock(mu_);
    streams_.Remove(stream_id, &calls);
  }
  Run(calls);
}

void GradientAccumulator::CloseAll(const absl::Status& status) {
  Calls calls;
  {
    MutexLock lock(mu_);
    closed_ = status;
    EndStreamsLocked(status, &calls);
  }
  Run(calls);
}

kernels::ConstRegion GradientAccumulator::UnclippedGradient(uint64_t generation,
                                                            uint32_t parameter_id) const {
  if (reductions_[parameter_id].is_clipped) return {};
  Parameter& parameter = *parameters_.at(parameter_id);
  MutexLock parameter_lock(parameter.mu);
  const ParameterFold& fold = *parameter.fold;
  if (parameter.generation != generation || !fold.finished() || fold.missing()) return {};
  if (fold.first_non_finite_rank().has_value() || parameter.sum->swapped().has_value()) return {};
  return fold.sum();
}

v1::DType GradientAccumulator::gradient_dtype(uint32_t parameter_id) const {
  Parameter& parameter = *parameters_.at(parameter_id);
  MutexLock parameter_lock(parameter.mu);
  return parameter.fold->first_dtype();
}

}  // namespace kaon::shard
