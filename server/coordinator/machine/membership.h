// Which attempt of each worker rank is the current one, and what it has begun (protocol.md section
// 1 and 2.1 rule 6). Pure; owned by StepMachine, called by its thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_MEMBERSHIP_H_
#define KAON_SERVER_COORDINATOR_MACHINE_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/coordinator.pb.h"

namespace kaon::coordinator {

struct WorkerSnapshot {
  uint32_t rank = 0;
  v1::Attempt attempt;
  // Step it has begun and that is not decided; absent if none.
  std::optional<uint64_t> begun_step;
  // As GradNormWatch has it.
  std::optional<double> grad_norm;
  uint64_t grad_norm_outliers = 0;
};

class Membership {
 public:
  struct Agreed {
    double multiplier = 1;
    // Of the members that differ: their own multipliers by rank.
    std::map<uint32_t, double> refused;
  };

  // Forgets every worker; ranks are 0 .. world_size-1 from now on.
  void Reset(uint32_t world_size);
  // Every rank must join again, and is allotted another attempt, in another timeline: the same
  // processes have the ranks.
  void BeginTimeline(uint32_t world_size);
  // Ranks are 0 .. world_size-1 from now on; those that stay keep their workers and what these have
  // begun.
  void Resize(uint32_t world_size);
  uint32_t world_size() const { return world_size_; }
  // INVALID_ARGUMENT for a rank out of range.
  absl::Status CheckRank(uint32_t rank) const;

  // Allots or confirms the attempt of a rank; new ones are numbered under `ballot`.
  // INVALID_ARGUMENT names the field; ABORTED when another process took the rank; UNAVAILABLE when
  // the attempt is of a ballot above this coordinator's own.
  absl::StatusOr<v1::Attempt> Join(const v1::JoinWorkerRequest& request, const v1::Ballot& ballot);

  // INVALID_ARGUMENT for a rank out of range; ABORTED unless `attempt` is the rank's current one.
  absl::Status CheckAttempt(uint32_t rank, const v1::Attempt& attempt) const;

  // Checks rank, attempt, nonce and the values; changes nothing. Codes: BeginStep in
  // coordinator.proto.
  absl::Status CheckBegin(const v1::BeginStepRequest& request) const;
  // Declares the step begun. After CheckBegin. ALREADY_EXISTS if begun with other values.
  absl::Status Begin(const v1::BeginStepRequest& request);
  // No rank has begun any step but `step` any more.
  void ForgetBegunExcept(uint64_t step);
  void ForgetBegun();

  // Steps go on without the rank until it joins, or is there again.
  void Lose(uint32_t rank) { lost_.insert(rank); }
  void Regain(uint32_t rank) { lost_.erase(rank); }
  const std::set<uint32_t>& lost() const { return lost_; }

  // Whether every rank that takes part in `step` has begun it: rank 0 alone for step 0, else those
  // that are not lost, at least one.
  bool AllBegun(uint64_t step) const;
  // Whether one of `ranks` has begun it.
  bool AnyBegun(uint64_t step, const std::set<uint32_t>& ranks) const;
  // Those that have begun it and are not lost, in rank order.
  std::vector<v1::Member> MembersOf(uint64_t step) const;
  // Requires AllBegun(step). Agrees on the learning-rate multiplier of the step: that of most
  // members, or of the lowest rank where as many have another. A member that differs has not begun
  // the step any more.
  Agreed AgreeOnMultiplier(uint64_t step);
  // The learning-rate multipliers that ranks have begun the step with, each once.
  std::set<double> BegunMultipliers(uint64_t step) const;
  // One of them, the newest if it is still there.
  std::optional<double> LastMultiplier(uint64_t step) const;
  bool HasBegun(uint32_t rank, uint64_t step) const;
  // Ranks that take part in `step` and have not begun it, ascending.
  std::vector<uint32_t> MissingRanks(uint64_t step) const;

  std::vector<WorkerSnapshot> Snapshot() const;

 private:
  struct Begun {
    uint64_t step = 0;
    double token_weight = 0;
    uint32_t micro_batches = 0;
    double multiplier = 0;
  };
  struct Worker {
    v1::Attempt attempt;
    uint64_t process_nonce = 0;
    std::optional<Begun> begun;
  };

  std::optional<uint32_t> AnyThatHasBegun(uint64_t step) const;
  bool HadRank(const v1::JoinWorkerRequest& request) const;
  uint32_t ParticipantsOf(uint64_t step) const { return step == 0 ? 1 : world_size_; }
  bool IsLost(uint64_t step, uint32_t rank) const { return step > 0 && lost_.count(rank) > 0; }
  absl::StatusOr<v1::Attempt> TakeRank(const v1::JoinWorkerRequest& request,
                                       const v1::Ballot& ballot);
  // Numbers begin again under each ballot.
  v1::Attempt Allot(const v1::Ballot& ballot);

  uint32_t world_size_ = 0;
  std::map<uint32_t, Worker> workers_;
  // Where AllBegun found one missing last, and who began last: what is looked at first, so that a
  // step's calls take time by the number of workers, not by its square.
  mutable uint32_t seen_missing_ = 0;
  uint32_t last_begun_ = 0;
  // Of older timelines.
  std::map<uint32_t, Worker> earlier_;
  std::set<uint32_t> lost_;
  v1::Ballot numbering_ballot_;
  uint32_t last_number_ = 0;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_MEMBERSHIP_H_
