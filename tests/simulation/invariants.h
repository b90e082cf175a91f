// Checks the conditions of protocol.md section 2.1, "The simulator asserts", at every moment of a
// run. Gets everything that the machines emit and remembers the first violation. Owned by one
// Cluster; one thread.
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
  // Returns the present machine of a shard; null while its process is dead.
  using MachineOf = std::function<const shard::ShardMachine*(int shard)>;
  // Reads the durable state of a shard's disk; absent if shards keep everything in memory (mode
  // `none`).
  using DiskOf = std::function<absl::StatusOr<DurableState>(int shard)>;
  // Returns the records that a shard shows.
  using HistoryOf = std::function<std::vector<v1::StepRecord>(int shard)>;
  // Draws whether to read the disks at this decision. The disks of dead shards are always read.
  using DrawCheck = std::function<bool()>;
  struct Cluster {
    int num_shards = 0;
    v1::JobDefinition job;
    // Most steps that a rollback discards (mode INTERVAL); 0 in other modes.
    uint32_t interval_steps = 0;
    MachineOf machine_of;
    DiskOf disk_of;
    // Absent in mode `none`.
    HistoryOf history_of;
    DrawCheck draw_check;
  };
  explicit Invariants(Cluster cluster);

  // Called when a coordinator sends a message to a shard.
  void OnCoordinatorSends(int coordinator, const v1::CoordinatorToShard& message);
  // Called just before a coordinator gets a message of a shard.
  void OnCoordinatorReceives(int coordinator, int shard, const v1::ShardToCoordinator& message) {
    answers_.OnDelivered(coordinator, shard, message);
  }
  // Called when a shard sends a message to a coordinator.
  void OnShardSends(int shard, const v1::ShardToCoordinator& message);
  // Called after a shard handled an event. Checks its promise, PREPARE and applied position.
  void AfterShardEvent(int shard);
  // Called after a shard's process has started and replayed its journal.
  void AfterShardStart(int shard);
  // Chunks that push streams deliver to shards.
  TakenChunks& taken_chunks() { return taken_chunks_; }
  // Called when any process learns the outcome of a position.
  void OnRecord(const v1::StepRecord& record);
  void Violated(const std::string& what);

  // Empty if nothing was violated.
  const std::string& violation() const { return violation_; }
  const Log& records() const { return records_; }
  // Placement of the job; empty before its registration is decided.
  const v1::Placement& placement() const { return placement_; }
  // Returns the newest position the shard has ever applied, in any of its lives.
  uint64_t highest_applied(int shard) const { return seen_[shard].highest_applied; }

 private:
  // A vote, by the fields that order it.
  struct Vote {
    uint64_t position = 0;
    v1::StepPlan plan;
  };
  // The part of the log from a restore, a rollback or the job's start on.
  struct Timeline {
    // Newest position and train step decided in it.
    uint64_t position = 0;
    uint64_t step = 0;
    // Position of the newest decided control entry.
    uint64_t config_revision = 0;
    // If a rollback begins the timeline: the step that it returns to.
    std::optional<uint64_t> back_to;
  };
  struct Seen {
    v1::Ballot promised;
    uint64_t applied = 0;
    uint64_t highest_applied = 0;
    // Highest (ballot, round) prepared at applied + 1.
    v1::StepPlan prepared;
    std::string prepared_bytes;
    // Chunks for PREPAREs up to this generation were checked, or are from before a restart.
    uint64_t checked_generation = 0;
    // Answers to coordinators. They must survive the process, except votes that mode INTERVAL
    // forgets.
    v1::Ballot answered_promise;
    Vote answered;
  };

  // Reports a violation unless `wrong` is empty.
  void Note(const std::string& wrong);
  void OnPlan(const v1::StepPlan& plan, const std::string& ballot);
  // Checks the record's place in the log and its predecessor.
  void CheckPlace(const v1::StepRecord& record);
  void BeginTimeline(const v1::StepRecord& record);
  // Checks that a rollback discarded no more of that timeline than the mode allows.
  void CheckLost(const std::map<uint64_t, Timeline>::iterator& timeline);
  void CheckPrepared(int shard, Seen& seen);
  void CheckAttempts(int shard, const v1::StepPlan& plan);
  void CheckGradients(int shard, const v1::StepPlan& plan, const v1::Prepared& prepared);
  // Returns the parameters that a step sums on that shard.
  std::vector<uint32_t> SummedOn(int shard, const v1::StepBody& step) const;
  // Checks that a started shard holds the decided records that it must hold.
  void CheckDecidedIsHeld(int shard, const shard::ShardMachine& machine);
  void CheckHeldEverywhere(const v1::StepRecord& record);
  // Checks that a started shard shows its earlier records as they were decided.
  void CheckHistory(int shard, uint64_t applied_position);
  // Checks the same on disk.
  void CheckDisk(int shard, uint64_t position, const std::string& plan);
  // Both concern mode INTERVAL, in which a shard that restarts forgets its vote.
  static bool IsTakenBack(const shard::ShardMachine& machine, uint64_t timeline);
  bool IsForgotten(const v1::StepPlan& plan) const;

  const Cluster cluster_;
  std::vector<Seen> seen_;
  DeliveredAnswers answers_;
  TakenChunks taken_chunks_;
  // Computes the gradients that a plan's members push.
  SerialReplay model_;
  Log records_;
  // The same records, serialized.
  std::map<LogKey, std::string> record_bytes_;
  v1::Placement placement_;
  // Timelines that began, and the newest that was planned.
  std::map<uint64_t, Timeline> timelines_ = {{1, {}}};
  uint64_t newest_planned_ = 1;
  // Serialized ballots of the coordinators that decided a position.
  std::map<uint64_t, std::set<std::string>> deciders_;
  // Maps position, ballot and round to their only plan.
  std::map<std::string, std::string> plans_;
  // Maps an attempt to its only process.
  std::map<std::string, uint64_t> nonces_;
  std::string violation_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_INVARIANTS_H_
