// What must hold at every moment of a run (protocol.md section 2.1, "The simulator asserts"). Fed
// with everything the machines emit; remembers the first violation. Owned by one Cluster; one
// thread.
#ifndef KAON_TESTS_SIMULATION_INVARIANTS_H_
#define KAON_TESTS_SIMULATION_INVARIANTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/shard/agreement/shard_machine.h"
#include "tests/simulation/delivered_answers.h"
#include "tests/simulation/durable_state.h"
#include "tests/simulation/history.h"
#include "tests/simulation/model.h"
#include "tests/simulation/taken_chunks.h"

namespace kaon::simulation {

class Invariants {
 public:
  // The machine of a shard, as it is now; null while its process is dead.
  using MachineOf = std::function<const shard::ShardMachine*(int shard)>;
  // What its disk holds for certain; absent when shards keep everything in memory (mode `none`).
  using DiskOf = std::function<absl::StatusOr<DurableState>(int shard)>;
  // The records that it shows.
  using HistoryOf = std::function<std::vector<v1::StepRecord>(int shard)>;
  // Whether the disks are read for this decision, beyond those of dead shards.
  using DrawCheck = std::function<bool()>;
  struct Cluster {
    int num_shards = 0;
    v1::JobDefinition job;
    // Steps that a rollback takes back at most (mode INTERVAL); 0 in modes that have none.
    uint32_t interval_steps = 0;
    MachineOf machine_of;
    DiskOf disk_of;
    // Absent in mode `none`.
    HistoryOf history_of;
    DrawCheck draw_check;
  };
  explicit Invariants(Cluster cluster);

  // That coordinator sends this to a shard.
  void OnCoordinatorSends(int coordinator, const v1::CoordinatorToShard& message);
  // It is about to be told this by that shard.
  void OnCoordinatorReceives(int coordinator, int shard, const v1::ShardToCoordinator& message) {
    answers_.OnDelivered(coordinator, shard, message);
  }
  // A shard sends this to a coordinator.
  void OnShardSends(int shard, const v1::ShardToCoordinator& message);
  // A shard was handed an event; looks at its promise, PREPARE and applied position.
  void AfterShardEvent(int shard);
  // A shard's process has started, and stands where its journal says.
  void AfterShardStart(int shard);
  // What push streams bring there.
  TakenChunks& taken_chunks() { return taken_chunks_; }
  // Anybody learned that this is the outcome of a position.
  void OnRecord(const v1::StepRecord& record);
  void Violated(const std::string& what);

  // Empty if nothing was violated.
  const std::string& violation() const { return violation_; }
  const Log& records() const { return records_; }
  // Of the job; empty before its registration is decided.
  const v1::Placement& placement() const { return placement_; }
  // The newest position the shard has ever applied, in any of its lives.
  uint64_t highest_applied(int shard) const { return seen_[shard].highest_applied; }

 private:
  // A vote, by what orders it.
  struct Vote {
    uint64_t position = 0;
    v1::StepPlan plan;
  };
  // A part of the log that a restore or a rollback begins, or the job.
  struct Timeline {
    // Newest position and train step decided in it.
    uint64_t position = 0;
    uint64_t step = 0;
    // Position of the newest decided control entry.
    uint64_t config_revision = 0;
    // Of one that a rollback begins: the step it goes back to.
    std::optional<uint64_t> back_to;
  };
  struct Seen {
    v1::Ballot promised;
    uint64_t applied = 0;
    uint64_t highest_applied = 0;
    // Highest (ballot, round) prepared at applied + 1.
    v1::StepPlan prepared;
    std::string prepared_bytes;
    // What was pushed for PREPAREs up to this generation was looked at, or is from before a
    // restart.
    uint64_t checked_generation = 0;
    // What coordinators were answered: it must survive the process, but for votes that mode
    // INTERVAL forgets.
    v1::Ballot answered_promise;
    Vote answered;
  };

  // Violated, unless it is empty.
  void Note(const std::string& wrong);
  void OnPlan(const v1::StepPlan& plan, const std::string& ballot);
  // Where in the log the record is, and what it follows from.
  void CheckPlace(const v1::StepRecord& record);
  void BeginTimeline(const v1::StepRecord& record);
  // What a rollback took back of that timeline is no more than the mode allows.
  void CheckLost(const std::map<uint64_t, Timeline>::iterator& timeline);
  void CheckPrepared(int shard, Seen& seen);
  void CheckAttempts(int shard, const v1::StepPlan& plan);
  void CheckGradients(int shard, const v1::StepPlan& plan, const v1::Prepared& prepared);
  // Parameters that a step sums on that shard.
  std::vector<uint32_t> SummedOn(int shard, const v1::StepBody& step) const;
  // A started shard holds what it has to, as it was decided.
  void CheckDecidedIsHeld(int shard, const shard::ShardMachine& machine);
  void CheckHeldEverywhere(const v1::StepRecord& record);
  // A started shard shows what it did, as it was decided.
  void CheckHistory(int shard, uint64_t applied_position);
  // The same, on disk.
  void CheckDisk(int shard, uint64_t position, const std::string& plan);
  // Mode INTERVAL: a shard that restarts has forgotten its vote.
  static bool IsTakenBack(const shard::ShardMachine& machine, uint64_t timeline);
  bool IsForgotten(const v1::StepPlan& plan) const;

  const Cluster cluster_;
  std::vector<Seen> seen_;
  DeliveredAnswers answers_;
  TakenChunks taken_chunks_;
  // Says what gradients a plan's members push.
  SerialReplay model_;
  Log records_;
  // The same, serialized.
  std::map<LogKey, std::string> record_bytes_;
  v1::Placement placement_;
  // Those that began, and the newest that was planned.
  std::map<uint64_t, Timeline> timelines_ = {{1, {}}};
  uint64_t newest_planned_ = 1;
  // Serialized ballots of the coordinators that decided a position.
  std::map<uint64_t, std::set<std::string>> deciders_;
  // Position, ballot and round name one plan.
  std::map<std::string, std::string> plans_;
  // One process per attempt.
  std::map<std::string, uint64_t> nonces_;
  std::string violation_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_INVARIANTS_H_
