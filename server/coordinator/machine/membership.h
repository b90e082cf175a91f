// The current attempt of each worker rank and the step that it has begun (protocol.md section 1 and
// 2.1 rule 6). Pure; owned by StepMachine, called by its thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_MEMBERSHIP_H_
#define KAON_SERVER_COORDINATOR_MACHINE_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "job/schedule.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/coordinator.pb.h"

namespace kaon::coordinator {

struct WorkerSnapshot {
  uint32_t rank = 0;
  v1::Attempt attempt;
  // Step that the rank has begun and that is not decided; absent if none.
  std::optional<uint64_t> begun_step;
  // Values of GradNormWatch.
  std::optional<double> grad_norm;
  uint64_t grad_norm_outliers = 0;
  // Calls of the rank that this coordinator has heard: a rank lives whose number goes up.
  uint64_t calls = 0;
  // True while a stream of the rank is open.
  bool awaits = false;
};

// ABORTED: another process took the rank.
absl::Status RankTaken(uint32_t rank);
// Returns the learning-rate multipliers of a request; groups with 1 are left out.
job::RateMultipliers MultipliersOf(const v1::BeginStepRequest& request);
// INVALID_ARGUMENT: `rank` began `step` with other multipliers than the agreed ones.
absl::Status MultipliersRefused(uint32_t rank, const job::RateMultipliers& multipliers,
                                const job::RateMultipliers& agreed, uint64_t step);

class Membership {
 public:
  struct Agreed {
    job::RateMultipliers multipliers;
    // Multipliers by rank of the members that differ.
    std::map<uint32_t, job::RateMultipliers> refused;
  };

  // Forgets every worker. Ranks are 0 .. world_size-1 from now on.
  void Reset(uint32_t world_size);
  // Begins another timeline: every rank must join again and is allotted another attempt. The same
  // processes keep the ranks.
  void BeginTimeline(uint32_t world_size);
  // Makes the ranks 0 .. world_size-1. Ranks that stay keep their workers and the steps that these
  // have begun.
  void Resize(uint32_t world_size);
  uint32_t world_size() const { return world_size_; }
  // INVALID_ARGUMENT for a rank out of range.
  absl::Status CheckRank(uint32_t rank) const;

  // Allots or confirms the attempt of a rank. New attempts are numbered under `ballot`.
  // INVALID_ARGUMENT names the field; ABORTED when another process took the rank; UNAVAILABLE when
  // the attempt is of a ballot above this coordinator's own.
  absl::StatusOr<v1::Attempt> Join(const v1::JoinWorkerRequest& request, const v1::Ballot& ballot);

  // Returns whether the join is of the process that has the rank, which keeps its attempt.
  bool KeepsAttempt(const v1::JoinWorkerRequest& request) const;

  // INVALID_ARGUMENT for a rank out of range; ABORTED unless `attempt` is the rank's current one.
  absl::Status CheckAttempt(uint32_t rank, const v1::Attempt& attempt) const;

  // Checks rank, attempt, nonce and the values; changes nothing. Codes: BeginStep in
  // coordinator.proto.
  absl::Status CheckBegin(const v1::BeginStepRequest& request) const;
  // Notes that the rank has begun the step; call CheckBegin first. ALREADY_EXISTS if the rank has
  // begun it with other values.
  absl::Status Begin(const v1::BeginStepRequest& request);
  // Forgets that ranks have begun other steps than `step`, or any step.
  void ForgetBegunExcept(uint64_t step);
  void ForgetBegun();

  // Steps go on without a lost rank until it joins or Regain is called. `why` is for people; empty
  // if nothing was heard of the rank.
  void Lose(uint32_t rank, const std::string& why) { lost_[rank] = why; }
  void Regain(uint32_t rank) { lost_.erase(rank); }
  // Returns the lost ranks, and why.
  const std::map<uint32_t, std::string>& lost() const { return lost_; }

  // Returns whether every rank that takes part in `step` has begun it. Rank 0 alone takes part in
  // step 0; all ranks that are not lost, at least one, take part in a train step.
  bool AllBegun(uint64_t step) const;
  // Returns the ranks that are neither lost nor `there`, ascending; none unless one of `there` has
  // begun `step`.
  std::vector<uint32_t> AbsentRanks(uint64_t step, const std::set<uint32_t>& there) const;
  // Returns whether each of `planned` has begun `step` with the same attempt and is not lost.
  bool AreMembers(const google::protobuf::RepeatedPtrField<v1::Member>& planned,
                  uint64_t step) const;
  // Returns the ranks that have begun `step` and are not lost, in rank order.
  std::vector<v1::Member> MembersOf(uint64_t step) const;
  // Requires AllBegun(step). Agrees on the learning-rate multipliers of the step: those of most
  // members; in a tie, those of the lowest rank. A member that differs has not begun the step any
  // more.
  Agreed AgreeOnMultipliers(uint64_t step);
  // Returns the learning-rate multipliers that ranks have begun the step with, each once.
  std::set<job::RateMultipliers> BegunMultipliers(uint64_t step) const;
  // Returns the multipliers of the rank that began the step last, or of another rank that has begun
  // it; nothing if none has.
  std::optional<job::RateMultipliers> LastMultipliers(uint64_t step) const;
  bool HasBegun(uint32_t rank, uint64_t step) const;
  // Returns the trace id, 16 bytes, with which the lowest member began the step that names one;
  // empty if none does.
  std::string TraceOf(uint64_t step) const;
  // Returns the ranks that take part in `step` and have not begun it, ascending.
  std::vector<uint32_t> MissingRanks(uint64_t step) const;

  std::vector<WorkerSnapshot> Snapshot() const;

 private:
  struct Begun {
    uint64_t step = 0;
    double token_weight = 0;
    uint32_t micro_batches = 0;
    job::RateMultipliers multipliers;
    std::string trace_id;
  };
  struct Worker {
    v1::Attempt attempt;
    uint64_t process_nonce = 0;
    std::optional<Begun> begun;
  };

  std::optional<uint32_t> AnyThatHasBegun(uint64_t step) const;
  bool HadRank(const v1::JoinWorkerRequest& request) const;
  // Returns whether the caller knows a newer attempt of its rank than this coordinator does.
  bool HasNewerAttempt(const v1::JoinWorkerRequest& request) const;
  uint32_t ParticipantsOf(uint64_t step) const { return step == 0 ? 1 : world_size_; }
  bool IsLost(uint64_t step, uint32_t rank) const { return step > 0 && lost_.count(rank) > 0; }
  absl::StatusOr<v1::Attempt> TakeRank(const v1::JoinWorkerRequest& request,
                                       const v1::Ballot& ballot);
  // Allots the next number. Numbers begin again under each ballot.
  v1::Attempt Allot(const v1::Ballot& ballot);

  uint32_t world_size_ = 0;
  std::map<uint32_t, Worker> workers_;
  // Rank that AllBegun found missing last, and rank that began last. Searches start there, so that
  // all calls of a step take time linear in the number of workers.
  mutable uint32_t seen_missing_ = 0;
  uint32_t last_begun_ = 0;
  // Workers of older timelines.
  std::map<uint32_t, Worker> earlier_;
  std::map<uint32_t, std::string> lost_;
  v1::Ballot numbering_ballot_;
  uint32_t last_number_ = 0;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_MEMBERSHIP_H_
