// Counts how long the next step has waited for each worker, whatever that worker does meanwhile
// (protocol.md 2.2 "Worker lost", step_seconds). Says when to ask shards whose gradients they lack.
// Pure; owned by StepMachine, called by its thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_STEP_DEADLINE_H_
#define KAON_SERVER_COORDINATOR_MACHINE_STEP_DEADLINE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace kaon::coordinator {

class StepDeadline {
 public:
  // Names the next step. If it is another than before, everything is forgotten.
  void OnStep(uint64_t timeline, uint64_t step);
  // Forgets all times: an admin or a shard made the workers push once more.
  void Reset();
  // Another round of the step was opened: its members may have to push once more, and nobody knows
  // yet who owes gradients to it.
  void OnRound();
  // A member of the open round joined anew, so the other members may have to push once more. One
  // time is free for each rank, since a worker may restart. From then on the rank is charged with
  // the whole time of the round that it ended, and the others are not.
  void OnRejoin(uint32_t rank);
  // Forgets the times of a rank that the job goes on without. If it joins again, it begins anew.
  void OnLost(uint32_t rank) { waits_.erase(rank); }
  // Takes a shard's list of the members that have not finished their push, ascending. A shard that
  // has voted has an empty one.
  void OnAwaited(int shard, std::vector<uint32_t> ranks);

  // Returns the lowest rank that owes gradients of the open round, as far as the shards have said
  // lately. Only this rank is to blame: shards sum in rank order, so a higher one may wait for it.
  std::optional<uint32_t> Owing() const;
  // Adds `passed` to the times of the ranks that the step waits for. Returns the ranks whose time
  // has reached `patience` and that the step waits for, or that have ended rounds; ascending.
  // `ranks` are ascending. `in_round`: all members are there, and `ranks` owe gradients.
  std::vector<uint32_t> Tick(absl::Duration passed, const std::vector<uint32_t>& ranks,
                             bool in_round, absl::Duration patience);
  // Returns true once for each second that a round takes, or more often if `patience` is short.
  bool ShouldAsk();

 private:
  struct Wait {
    // Time for which the rank is to blame, and that of the open round on top of it.
    absl::Duration before;
    absl::Duration in_round;
    int rejoins = 0;
  };
  struct Awaited {
    std::vector<uint32_t> ranks;
    // Time of the round at which the shard said so.
    absl::Duration at;
  };

  std::pair<uint64_t, uint64_t> step_;
  std::map<uint32_t, Wait> waits_;
  absl::Duration round_;
  absl::Duration asked_;
  // Time between two questions, and how long an answer counts.
  absl::Duration interval_ = absl::Seconds(1);
  std::map<int, Awaited> awaited_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_STEP_DEADLINE_H_
