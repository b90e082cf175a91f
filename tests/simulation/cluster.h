// A whole cluster in one thread and virtual time: the production state machines of coordinators,
// shards and workers, joined by a network that delays, reorders, repeats and loses messages and
// breaks streams, with processes that die, freeze and start again, over disks that fill up, fail
// and lose what was not synced. Everything follows from the seed. Used by step_simulation_test; one
// thread.
#ifndef KAON_TESTS_SIMULATION_CLUSTER_H_
#define KAON_TESTS_SIMULATION_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "tests/simulation/trace_ring.h"

namespace kaon::simulation {

// Deliberate faults of the kind the protocol must not have; the run must report a violation.
enum class SeededBug {
  kNone,
  // A shard starts again empty and does not say that it lost its state (rule 5).
  kForgetfulShard,
  // A worker computes another gradient under the same attempt after a reopened round (rule 6).
  kChangedGradient,
  // A process has a bug that ends it: here, where all are one process, the run.
  kFailedCheck,
  kSegmentationFault,
  // A shard dies and nobody starts it again.
  kLostShard,
};
constexpr SeededBug kLastSeededBug = SeededBug::kLostShard;

struct ClusterOptions {
  uint64_t seed = 1;
  int num_shards = 3;
  int num_coordinators = 2;
  int num_workers = 3;
  // Train steps to reach.
  uint64_t num_steps = 10;
  // Probabilities per message.
  double loss = 0.05;
  double duplication = 0.05;
  // Mean time between kills or freezes of some process, while faults last.
  absl::Duration time_between_faults = absl::Seconds(2);
  absl::Duration fault_phase = absl::Seconds(15);
  // Whoever has done its steps waits until faults have stopped, and then does some more.
  bool past_faults = false;
  // Virtual time within which all steps must be done once faults have stopped.
  absl::Duration liveness_limit = absl::Seconds(120);
  // Shards journal to simulated disks and may die (mode `journal`); otherwise they live as long as
  // the run (mode `none`).
  bool durable = true;
  // K of mode `interval(K)`, if they are durable; 0 = `journal`.
  uint32_t interval_steps = 0;
  // Share of the faults that hit shards, when they are durable.
  double shard_faults = 0.6;
  // The job goes on without workers that are lost (T21); some never come back.
  bool shrink = false;
  // The job stops when a worker is lost, and goes on once somebody has restarted the coordinator,
  // or it was taken back to a checkpoint. Not together with `shrink`.
  bool fail = false;
  // An admin keeps checkpoints, and takes the job back to some.
  bool checkpoints = false;
  // Coordinators take one by themselves each time so many train steps are applied; 0 = never.
  uint64_t checkpoint_every_steps = 0;
  // Bits of gradients flip in memory while a journal is replayed: the digest must tell.
  bool flips = false;
  SeededBug bug = SeededBug::kNone;
  // Prints every event.
  bool trace = false;
  // Gets every event, if there is one; outlives the run.
  TraceRing* newest_events = nullptr;
  // Each machine has a steady clock of its own, of another origin and speed.
  bool skewed_clocks = false;
};

struct ClusterResult {
  // Empty if every promise held.
  std::string violation;
  // Faults there were, and whether they had stopped before all was done.
  int faults = 0;
  int healed = 0;
  uint64_t num_events = 0;
  // Same seed, same hash.
  uint64_t event_hash = 0;
  uint64_t applied_step = 0;
  int coordinator_kills = 0;
  int coordinator_freezes = 0;
  // Coordinators cut off from all shards, but not from workers.
  int partitions = 0;
  int worker_kills = 0;
  // Of these, those that never came back; steps with fewer members than workers, and ranks that
  // took part again after such a step.
  int workers_gone = 0;
  // Steps that a worker ended before their decision, to begin them again with another gradient.
  int given_up = 0;
  int shrunk_steps = 0;
  int returns = 0;
  // Jobs that stopped because a worker was lost, workers that were told so, coordinators that were
  // restarted for it, and of the jobs, those that went on under the same coordinator in another
  // timeline.
  int loss_stops = 0;
  int told_of_loss = 0;
  int loss_restarts = 0;
  int loss_restores = 0;
  // Push streams of workers that should be dead, opened again; and those that shards refused for
  // their attempt.
  int outlived_pushes = 0;
  int outlived_refused = 0;
  // Late copies of answers and plans that were obsolete when they came.
  int obsolete_copies = 0;
  int shard_kills = 0;
  // Of single shards, and of all machines at once.
  int power_cuts = 0;
  int blackouts = 0;
  // Calls that a full disk refused; processes that a failing one ended.
  uint64_t full_refusals = 0;
  int disk_failures = 0;
  // Starts that found a journal with a torn end, and starts that did not get through it.
  int torn_tails = 0;
  int deaths_in_recovery = 0;
  // Snapshots finished, starts that found one, and truncations that removed something.
  int snapshots = 0;
  int restored_snapshots = 0;
  int truncations = 0;
  // Bits that had flipped in memory, found by the digest.
  int flips_found = 0;
  // Written and not synced when the power was cut.
  uint64_t sectors_lost = 0;
  // Decisions at which every shard's disk was read.
  int disks_checked = 0;
  int takeovers = 0;
  int reopened_rounds = 0;
  int skipped_steps = 0;
  int group_changes = 0;
  // Rollbacks, the steps that they took back, and workers that were told that the job was taken
  // back.
  int rollbacks = 0;
  uint64_t steps_lost = 0;
  int rewinds = 0;
  // Checkpoints that were reported, parts and manifests that a death interrupted, and restores.
  int checkpoints = 0;
  int torn_checkpoints = 0;
  int restores = 0;
  // Calls of clients that the check of the history had to explain.
  uint64_t operations = 0;
  // Records that a new holder had to ask for.
  int record_reads = 0;
};

ClusterResult RunCluster(const ClusterOptions& options);

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_CLUSTER_H_
