#include "server/coordinator/machine/membership.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/validation.h"
#include "proto/ballot.h"
#include "proto/status_macros.h"
#include "server/monitor/trace_context.h"

namespace kaon::coordinator {

namespace {

// Returns 1 for 0.
uint32_t MicroBatches(const v1::BeginStepRequest& request) {
  return request.micro_batches() == 0 ? 1 : request.micro_batches();
}

// Keeps 16 bytes of what a caller may make long.
std::string TraceIdOf(const v1::BeginStepRequest& request) {
  const auto context = monitor::ParseTraceparent(request.traceparent());
  return context.has_value() ? context->trace_id : "";
}

absl::Status CheckShare(const v1::BeginStepRequest& request) {
  const double weight = request.token_weight();
  KAON_RETURN_IF_ERROR(job::ValidateShare(weight, MicroBatches(request), MultipliersOf(request)));
  if (request.step() != 0) return absl::OkStatus();
  // The initial weights are pushed as one contribution that is divided by nothing.
  if (request.rank() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", request.rank(), ", step 0 (initial weights) is rank 0's alone"));
  }
  if (weight != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("token_weight is ", weight, ", must be 1 for step 0 (initial weights)"));
  }
  if (MicroBatches(request) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("micro_batches is ", request.micro_batches(),
                                                   ", must be 1 for step 0 (initial weights)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RankTaken(uint32_t rank) {
  return absl::AbortedError(absl::StrCat("rank ", rank, " was taken by another process"));
}

job::RateMultipliers MultipliersOf(const v1::BeginStepRequest& request) {
  job::RateMultipliers multipliers;
  if (request.has_learning_rate_multiplier()) {
    multipliers.step = request.learning_rate_multiplier();
  }
  for (const auto& [group, factor] : request.group_multipliers()) {
    if (factor != 1) multipliers.groups[group] = factor;
  }
  return multipliers;
}

absl::Status MultipliersRefused(uint32_t rank, const job::RateMultipliers& multipliers,
                                const job::RateMultipliers& agreed, uint64_t step) {
  return absl::InvalidArgumentError(absl::StrCat(
      "learning_rate_multiplier is ", multipliers.Text(), " from rank ", rank,
      ", the ranks agreed on ", agreed.Text(), " for step ", step, ": use the same on every rank"));
}

void Membership::Reset(uint32_t world_size) {
  world_size_ = world_size;
  workers_.clear();
  earlier_.clear();
  lost_.clear();
}

void Membership::BeginTimeline(uint32_t world_size) {
  std::map<uint32_t, Worker> earlier = std::move(earlier_);
  for (auto& [rank, worker] : workers_) earlier[rank] = std::move(worker);
  Reset(world_size);
  earlier_ = std::move(earlier);
}

void Membership::Resize(uint32_t world_size) {
  world_size_ = world_size;
  workers_.erase(workers_.lower_bound(world_size), workers_.end());
  earlier_.erase(earlier_.lower_bound(world_size), earlier_.end());
  lost_.erase(lost_.lower_bound(world_size), lost_.end());
}

absl::Status Membership::CheckRank(uint32_t rank) const {
  if (rank < world_size_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rank is ", rank, ", must be 0 .. ",
                                                 world_size_ - 1, " (the job's world_size is ",
                                                 world_size_, ")"));
}

bool Membership::HadRank(const v1::JoinWorkerRequest& request) const {
  const auto earlier = earlier_.find(request.rank());
  return earlier != earlier_.end() && earlier->second.process_nonce == request.process_nonce() &&
         proto::Compare(earlier->second.attempt, request.previous_attempt()) == 0;
}

v1::Attempt Membership::Allot(const v1::Ballot& ballot) {
  if (proto::Compare(ballot, numbering_ballot_) != 0) {
    numbering_ballot_ = ballot;
    last_number_ = 0;
  }
  v1::Attempt attempt;
  *attempt.mutable_ballot() = ballot;
  attempt.set_number(++last_number_);
  return attempt;
}

absl::StatusOr<v1::Attempt> Membership::Join(const v1::JoinWorkerRequest& request,
                                             const v1::Ballot& ballot) {
  absl::StatusOr<v1::Attempt> attempt = TakeRank(request, ballot);
  if (attempt.ok()) Regain(request.rank());
  return attempt;
}

bool Membership::HasNewerAttempt(const v1::JoinWorkerRequest& request) const {
  const auto known = workers_.find(request.rank());
  return request.has_previous_attempt() &&
         (known == workers_.end() ||
          proto::Compare(request.previous_attempt(), known->second.attempt) > 0);
}

bool Membership::KeepsAttempt(const v1::JoinWorkerRequest& request) const {
  const auto known = workers_.find(request.rank());
  return known != workers_.end() && known->second.process_nonce == request.process_nonce() &&
         !HasNewerAttempt(request);
}

absl::StatusOr<v1::Attempt> Membership::TakeRank(const v1::JoinWorkerRequest& request,
                                                 const v1::Ballot& ballot) {
  const uint32_t rank = request.rank();
  KAON_RETURN_IF_ERROR(CheckRank(rank));
  if (request.process_nonce() == 0) {
    return absl::InvalidArgumentError("process_nonce is 0, must be a random number");
  }
  const auto known = workers_.find(rank);
  // The same process repeats a Join whose answer was lost.
  if (KeepsAttempt(request)) return known->second.attempt;
  if (!request.has_previous_attempt() || (known == workers_.end() && HadRank(request))) {
    workers_[rank] = {Allot(ballot), request.process_nonce(), std::nullopt};
    return workers_[rank].attempt;
  }
  if (!HasNewerAttempt(request)) return RankTaken(rank);
  const v1::Attempt& previous = request.previous_attempt();
  const int by_ballot = proto::Compare(previous.ballot(), ballot);
  if (by_ballot > 0) {
    return absl::UnavailableError(absl::StrCat("previous_attempt is ", proto::ToString(previous),
                                               ", of a coordinator newer than this one (",
                                               proto::ToString(ballot), ")"));
  }
  // This coordinator knows every attempt it allotted under its own ballot.
  if (by_ballot == 0) return RankTaken(rank);
  workers_[rank] = {previous, request.process_nonce(), std::nullopt};
  return previous;
}

absl::Status Membership::CheckAttempt(uint32_t rank, const v1::Attempt& attempt) const {
  KAON_RETURN_IF_ERROR(CheckRank(rank));
  const auto it = workers_.find(rank);
  if (it == workers_.end()) {
    return absl::AbortedError(absl::StrCat("rank ", rank,
                                           ": this coordinator does not know attempt ",
                                           proto::ToString(attempt), ", join again"));
  }
  if (proto::Compare(it->second.attempt, attempt) != 0) {
    return absl::AbortedError(absl::StrCat("rank ", rank, ": attempt is ", proto::ToString(attempt),
                                           ", the current one is ",
                                           proto::ToString(it->second.attempt), ", join again"));
  }
  return absl::OkStatus();
}

absl::Status Membership::CheckBegin(const v1::BeginStepRequest& request) const {
  KAON_RETURN_IF_ERROR(CheckShare(request));
  KAON_RETURN_IF_ERROR(CheckAttempt(request.rank(), request.attempt()));
  const Worker& worker = workers_.at(request.rank());
  if (worker.process_nonce != request.process_nonce()) return RankTaken(request.rank());
  return absl::OkStatus();
}

absl::Status Membership::Begin(const v1::BeginStepRequest& request) {
  const Begun begun{request.step(), request.token_weight(), MicroBatches(request),
                    MultipliersOf(request), TraceIdOf(request)};
  const uint32_t rank = request.rank();
  if (HasBegun(rank, begun.step)) {
    // Rule 6: "Begin(t) of one attempt is immutable".
    const Begun& before = *workers_.at(rank).begun;
    if (before.token_weight == begun.token_weight && before.micro_batches == begun.micro_batches &&
        before.multipliers == begun.multipliers) {
      return absl::OkStatus();
    }
    return absl::AlreadyExistsError(absl::StrCat(
        "rank ", rank, " has begun step ", begun.step, " with token_weight ", before.token_weight,
        ", micro_batches ", before.micro_batches, ", learning_rate_multiplier ",
        before.multipliers.Text(), "; now it says ", begun.token_weight, ", ", begun.micro_batches,
        ", ", begun.multipliers.Text()));
  }
  workers_.at(rank).begun = begun;
  last_begun_ = rank;
  return absl::OkStatus();
}

void Membership::ForgetBegunExcept(uint64_t step) {
  for (auto& [rank, worker] : workers_) {
    if (worker.begun && worker.begun->step != step) worker.begun.reset();
  }
}

void Membership::ForgetBegun() {
  for (auto& [rank, worker] : workers_) worker.begun.reset();
}

bool Membership::HasBegun(uint32_t rank, uint64_t step) const {
  const auto it = workers_.find(rank);
  return it != workers_.end() && it->second.begun && it->second.begun->step == step;
}

std::optional<uint32_t> Membership::AnyThatHasBegun(uint64_t step) const {
  if (HasBegun(last_begun_, step)) return last_begun_;
  for (const auto& [rank, worker] : workers_) {
    if (worker.begun && worker.begun->step == step) return rank;
  }
  return std::nullopt;
}

std::vector<uint32_t> Membership::MissingRanks(uint64_t step) const {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < ParticipantsOf(step); ++rank) {
    if (!IsLost(step, rank) && !HasBegun(rank, step)) missing.push_back(rank);
  }
  return missing;
}

bool Membership::AllBegun(uint64_t step) const {
  // Start at the rank that was missing last. So no rank is looked at twice in a step while another
  // is missing.
  const uint32_t ranks = ParticipantsOf(step);
  bool any = false;
  for (uint32_t i = 0; i < ranks; ++i) {
    const uint32_t rank = (seen_missing_ + i) % ranks;
    if (IsLost(step, rank)) continue;
    if (!HasBegun(rank, step)) {
      seen_missing_ = rank;
      return false;
    }
    any = true;
  }
  return any;
}

std::vector<uint32_t> Membership::AbsentRanks(uint64_t step,
                                              const std::set<uint32_t>& there) const {
  std::vector<uint32_t> absent;
  const bool any_begun =
      std::any_of(there.begin(), there.end(), [&](uint32_t rank) { return HasBegun(rank, step); });
  for (uint32_t rank = 0; any_begun && rank < world_size_; ++rank) {
    if (there.count(rank) == 0 && lost_.count(rank) == 0) absent.push_back(rank);
  }
  return absent;
}

bool Membership::AreMembers(const google::protobuf::RepeatedPtrField<v1::Member>& planned,
                            uint64_t step) const {
  return std::all_of(planned.begin(), planned.end(), [&](const v1::Member& member) {
    return HasBegun(member.rank(), step) && !IsLost(step, member.rank()) &&
           proto::Compare(workers_.at(member.rank()).attempt, member.attempt()) == 0;
  });
}

std::vector<v1::Member> Membership::MembersOf(uint64_t step) const {
  std::vector<v1::Member> members;
  for (const auto& [rank, worker] : workers_) {
    if (!worker.begun || worker.begun->step != step || IsLost(step, rank)) continue;
    v1::Member& member = members.emplace_back();
    member.set_rank(rank);
    *member.mutable_attempt() = worker.attempt;
    member.set_process_nonce(worker.process_nonce);
    member.set_token_weight(worker.begun->token_weight);
    member.set_micro_batches(worker.begun->micro_batches);
  }
  return members;
}

std::string Membership::TraceOf(uint64_t step) const {
  for (const auto& [rank, worker] : workers_) {
    if (!HasBegun(rank, step) || IsLost(step, rank)) continue;
    if (!worker.begun->trace_id.empty()) return worker.begun->trace_id;
  }
  return "";
}

Membership::Agreed Membership::AgreeOnMultipliers(uint64_t step) {
  const std::vector<v1::Member> members = MembersOf(step);
  CHECK(!members.empty()) << "nobody has begun step " << step;
  std::map<job::RateMultipliers, int> votes;
  for (const v1::Member& member : members) ++votes[workers_.at(member.rank()).begun->multipliers];
  Agreed agreed;
  int most = 0;
  for (const v1::Member& member : members) {
    const job::RateMultipliers& multipliers = workers_.at(member.rank()).begun->multipliers;
    if (votes[multipliers] > most) {
      most = votes[multipliers];
      agreed.multipliers = multipliers;
    }
  }
  for (const v1::Member& member : members) {
    std::optional<Begun>& begun = workers_.at(member.rank()).begun;
    if (begun->multipliers == agreed.multipliers) continue;
    agreed.refused[member.rank()] = begun->multipliers;
    begun.reset();
  }
  return agreed;
}

std::set<job::RateMultipliers> Membership::BegunMultipliers(uint64_t step) const {
  std::set<job::RateMultipliers> multipliers;
  for (const auto& [rank, worker] : workers_) {
    if (HasBegun(rank, step)) multipliers.insert(worker.begun->multipliers);
  }
  return multipliers;
}

std::optional<job::RateMultipliers> Membership::LastMultipliers(uint64_t step) const {
  const std::optional<uint32_t> rank = AnyThatHasBegun(step);
  if (!rank) return std::nullopt;
  return workers_.at(*rank).begun->multipliers;
}

std::vector<WorkerSnapshot> Membership::Snapshot() const {
  std::vector<WorkerSnapshot> snapshot;
  for (const auto& [rank, worker] : workers_) {
    WorkerSnapshot& row = snapshot.emplace_back();
    row.rank = rank;
    row.attempt = worker.attempt;
    if (worker.begun) row.begun_step = worker.begun->step;
  }
  return snapshot;
}

}  // namespace kaon::coordinator
