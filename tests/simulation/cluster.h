// A whole cluster in one thread and virtual time. Runs the production state machines of
// coordinators, shards and workers. Their network delays, reorders, repeats and loses messages and
// breaks streams. Their processes die, freeze and start again. Their disks fill up, fail and lose
// unsynced data. The seed determines everything. Used by step_simulation_test; one thread.
#ifndef KAON_TESTS_SIMULATION_CLUSTER_H_
#define KAON_TESTS_SIMULATION_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "tests/simulation/trace_ring.h"

namespace kaon::simulation {

// Deliberate bugs that the protocol must not have; the run must report a violation.
enum class SeededBug {
  kNone,
  // A restarted shard is empty and does not report that it lost its state (rule 5).
  kForgetfulShard,
  // A worker computes another gradient under the same attempt after a reopened round (rule 6).
  kChangedGradient,
  // A process has a bug that ends it. All processes are one here, so it ends the run.
  kFailedCheck,
  kSegmentationFault,
  // A shard dies and nothing starts it again.
  kLostShard,
};
constexpr SeededBug kLastSeededBug = SeededBug::kLostShard;

struct ClusterOptions {
  uint64_t seed = 1;
  int num_shards = 3;
  int num_coordinators = 2;
  int num_workers = 3;
  // Number of train steps.
  uint64_t num_steps = 10;
  // Probabilities per message.
  double loss = 0.05;
  double duplication = 0.05;
  // Mean time between kills or freezes of some process, while faults last.
  absl::Duration time_between_faults = absl::Seconds(2);
  absl::Duration fault_phase = absl::Seconds(15);
  // A worker that has done its steps waits until faults have stopped, and then does some more.
  bool past_faults = false;
  // Virtual time within which all steps must be done once faults have stopped.
  absl::Duration liveness_limit = absl::Seconds(120);
  // Shards journal to simulated disks and may die (mode `journal`). Otherwise they live as long as
  // the run (mode `none`).
  bool durable = true;
  // K of mode `interval(K)` for durable shards; 0 = `journal`.
  uint32_t interval_steps = 0;
  // Share of the faults that hit shards, if these are durable.
  double shard_faults = 0.6;
  // The job continues without lost workers (T21); some never return.
  bool shrink = false;
  // The job stops when a worker is lost. It continues once an operator restarts the coordinator or
  // restores a checkpoint. Excludes `shrink`.
  bool fail = false;
  // With either of them, the job has step_seconds.
  bool step_deadline = false;
  // Some worker holds steps for a while: it is heard and pushes no gradients. Needs `shrink`,
  // `step_deadline` and several workers.
  bool holder = false;
  // An admin takes checkpoints and restores some of them.
  bool checkpoints = false;
  // Coordinators take a checkpoint automatically every so many applied train steps; 0 = never.
  uint64_t checkpoint_every_steps = 0;
  // An admin deletes the job now and then, and its workers register it anew. Excludes `shrink`: a
  // rank 0 that never returns could not load the weights again.
  bool deletions = false;
  // Bits of gradients flip in memory while a journal is replayed; the digest must detect them.
  bool flips = false;
  // Shards have a disk for parameters, and the groups of the job ask for it.
  bool nvme = false;
  SeededBug bug = SeededBug::kNone;
  // Prints every event.
  bool trace = false;
  // Receives every event if it is set; outlives the run.
  TraceRing* newest_events = nullptr;
  // Each machine has a steady clock with its own origin and speed.
  bool skewed_clocks = false;
};

struct ClusterResult {
  // Empty if every promise held.
  std::string violation;
  // Number of faults, and whether they had stopped before all steps were done.
  int faults = 0;
  int healed = 0;
  uint64_t num_events = 0;
  // Runs of one seed have one hash.
  uint64_t event_hash = 0;
  uint64_t applied_step = 0;
  int coordinator_kills = 0;
  int coordinator_freezes = 0;
  // Coordinators cut off from all shards, but not from workers.
  int partitions = 0;
  int worker_kills = 0;
  // Killed workers that never came back.
  int workers_gone = 0;
  // Steps that a worker abandoned before their decision and retried with another gradient.
  int given_up = 0;
  int shrunk_steps = 0;
  int returns = 0;
  // Times that a coordinator has given up the worker that holds steps.
  int held_out = 0;
  // Jobs that stopped because a worker was lost, and workers that got this error. Then the
  // coordinators that were restarted for it, and the jobs that continued in another timeline under
  // the same coordinator.
  int loss_stops = 0;
  int told_of_loss = 0;
  int loss_restarts = 0;
  int loss_restores = 0;
  // Push streams that workers which should be dead opened again, and those that shards rejected
  // because of their attempt.
  int outlived_pushes = 0;
  int outlived_refused = 0;
  // Late copies of answers and plans that were obsolete on arrival.
  int obsolete_copies = 0;
  int shard_kills = 0;
  // Power cuts of single shards, and of all machines at once.
  int power_cuts = 0;
  int blackouts = 0;
  // Calls that failed on a full disk, and processes that a failing disk ended.
  uint64_t full_refusals = 0;
  int disk_failures = 0;
  // Starts that found a journal with a torn tail, and starts that died during recovery.
  int torn_tails = 0;
  int deaths_in_recovery = 0;
  // Snapshots finished, starts that found one, and truncations that removed something.
  int snapshots = 0;
  int restored_snapshots = 0;
  int truncations = 0;
  // Flipped bits in memory that the digest detected.
  int flips_found = 0;
  // Sectors that were written but not synced when the power was cut.
  uint64_t sectors_lost = 0;
  // Decisions at which every shard's disk was read.
  int disks_checked = 0;
  int takeovers = 0;
  int reopened_rounds = 0;
  int skipped_steps = 0;
  int group_changes = 0;
  int deletions = 0;
  // Rollbacks, the steps they discarded, and workers that learned of a rollback or restore.
  int rollbacks = 0;
  uint64_t steps_lost = 0;
  int rewinds = 0;
  // Reported checkpoints, parts and manifests that a death interrupted, and restores.
  int checkpoints = 0;
  int torn_checkpoints = 0;
  int restores = 0;
  // Client calls that the check of the history had to explain.
  uint64_t operations = 0;
  // Records that a new holder had to read from shards.
  int record_reads = 0;
};

ClusterResult RunCluster(const ClusterOptions& options);

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_CLUSTER_H_
