// Runs the whole step protocol over many seeds. `--seeds=N --first_seed=S` choose them;
// `--model_size` makes each as large as a run of docs/design/reliability.md, "Evidence". A failing
// seed prints the command that replays it, its options and the newest events of its trace, even if
// the process dies. `--bug=N` runs with one of the seeded bugs of cluster.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/mutation/mutation.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/failing_seed.h"
#include "tests/simulation/seeds.h"

namespace kaon::simulation {
namespace {

uint64_t num_seeds = 200;
uint64_t first_seed = 1;
bool trace = false;
// Every seed with the size of the model in docs/design/reliability.md, "Evidence".
bool model_size = false;
// Seeds an hour and core, below which the run fails.
uint64_t least_rate = 0;
// Bazel's shards share the seeds.
uint64_t num_parts = 1;
uint64_t part = 0;
FailingSeed* seed_in_progress = nullptr;

// Of the run, so that it can be seen to be reported.
SeededBug seeded_bug = SeededBug::kNone;

ClusterOptions ChosenOptionsOf(uint64_t seed) {
  ClusterOptions options = model_size ? ModelSizedOptionsOf(seed) : OptionsOf(seed);
  options.trace = trace;
  options.bug = seeded_bug;
  return options;
}

// Returns the command that replays a seed, with the other options of this run.
std::string ReplayOf(uint64_t seed) {
  std::string chosen = model_size ? " --model_size" : "";
  std::string program = "bazel run --config=opt //tests/simulation:step_simulation_test --";
  if (seeded_bug != SeededBug::kNone) {
    absl::StrAppend(&chosen, " --bug=", static_cast<int>(seeded_bug));
  }
#ifdef KAON_PROTOCOL_MUTATIONS
  // tests/protocol_mutation.sh builds the program here.
  program = ".bazel/bin/tests/simulation/step_simulation_test";
  absl::StrAppend(&chosen, " --mutation=", chosen_mutation);
#endif
  return absl::StrCat(program, " --first_seed=", seed, " --seeds=1 --trace", chosen,
                      " '--gtest_filter=*KeepsEveryPromise*'");
}

void Add(const ClusterResult& result, ClusterResult& total) {
  total.num_events += result.num_events;
  total.faults += result.faults;
  total.healed += result.healed;
  total.applied_step += result.applied_step;
  total.coordinator_kills += result.coordinator_kills;
  total.coordinator_freezes += result.coordinator_freezes;
  total.partitions += result.partitions;
  total.worker_kills += result.worker_kills;
  total.workers_gone += result.workers_gone;
  total.given_up += result.given_up;
  total.shrunk_steps += result.shrunk_steps;
  total.returns += result.returns;
  total.held_out += result.held_out;
  total.loss_stops += result.loss_stops;
  total.told_of_loss += result.told_of_loss;
  total.loss_restarts += result.loss_restarts;
  total.loss_restores += result.loss_restores;
  total.outlived_pushes += result.outlived_pushes;
  total.outlived_refused += result.outlived_refused;
  total.obsolete_copies += result.obsolete_copies;
  total.shard_kills += result.shard_kills;
  total.power_cuts += result.power_cuts;
  total.blackouts += result.blackouts;
  total.full_refusals += result.full_refusals;
  total.disk_failures += result.disk_failures;
  total.torn_tails += result.torn_tails;
  total.deaths_in_recovery += result.deaths_in_recovery;
  total.sectors_lost += result.sectors_lost;
  total.flips_found += result.flips_found;
  total.snapshots += result.snapshots;
  total.restored_snapshots += result.restored_snapshots;
  total.truncations += result.truncations;
  total.disks_checked += result.disks_checked;
  total.takeovers += result.takeovers;
  total.reopened_rounds += result.reopened_rounds;
  total.skipped_steps += result.skipped_steps;
  total.group_changes += result.group_changes;
  total.deletions += result.deletions;
  total.rollbacks += result.rollbacks;
  total.steps_lost += result.steps_lost;
  total.rewinds += result.rewinds;
  total.checkpoints += result.checkpoints;
  total.torn_checkpoints += result.torn_checkpoints;
  total.restores += result.restores;
  total.operations += result.operations;
  total.record_reads += result.record_reads;
}

void Print(uint64_t num_run, const ClusterResult& total) {
  std::cout << num_run << " seeds, " << total.num_events << " events, " << total.faults
            << " faults, which had stopped before the end of " << total.healed << " seeds, "
            << total.coordinator_kills << " coordinators killed, " << total.coordinator_freezes
            << " frozen, " << total.partitions << " cut off, " << total.worker_kills
            << " workers killed (" << total.workers_gone << " for good), " << total.given_up
            << " steps given up and begun again, " << total.shrunk_steps
            << " steps with those that were left, " << total.returns << " returns, "
            << total.held_out << " times without a worker that holds steps, " << total.loss_stops
            << " jobs stopped for a lost worker (" << total.told_of_loss << " workers told, "
            << total.loss_restarts << " coordinators restarted, " << total.loss_restores
            << " taken back), " << total.outlived_pushes
            << " pushes of workers that should be dead (" << total.outlived_refused
            << " refused for their attempt), " << total.obsolete_copies << " obsolete copies, "
            << total.takeovers << " takeovers, " << total.reopened_rounds
            << " pushes in reopened rounds, " << total.skipped_steps << " skipped steps, "
            << total.group_changes << " changes of groups, " << total.deletions << " deletions, "
            << total.rollbacks << " rollbacks (" << total.steps_lost << " steps lost, "
            << total.rewinds << " rewinds), " << total.checkpoints << " checkpoints reported ("
            << total.torn_checkpoints << " parts and manifests cut short by a death), "
            << total.restores << " restores, " << total.operations << " calls explained, "
            << total.record_reads << " records read by new holders, " << total.shard_kills
            << " shards killed, " << total.power_cuts << " power cuts (" << total.blackouts
            << " of everything), " << total.sectors_lost << " sectors lost, " << total.torn_tails
            << " torn tails, " << total.full_refusals << " writes to full disks, "
            << total.disk_failures << " failed disks, " << total.deaths_in_recovery
            << " deaths in recovery, " << total.snapshots << " snapshots, "
            << total.restored_snapshots << " starts from one, " << total.truncations
            << " truncations, " << total.flips_found << " flipped bits found, "
            << total.disks_checked << " decisions compared with all disks" << std::endl;
}

// Of processor time: the rest of the machine may be busy.
void CheckRate(uint64_t num_run, const ClusterResult& total, double seconds) {
  const double rate = num_run / seconds * 3600;
  EXPECT_GE(rate, least_rate);
  std::cout << "rate: " << std::llround(rate) << " seeds/hour/core"
            << (model_size ? " of the model's size" : "") << ", " << total.num_events / num_run
            << " events and " << total.applied_step / num_run << " steps a seed" << std::endl;
}

TEST(StepSimulationTest, KeepsEveryPromiseAndProgressesUnderFaults) {
  ClusterResult total;
  uint64_t num_run = 0;
  FailingSeed& failing = *seed_in_progress;
  const std::clock_t start = std::clock();
  for (uint64_t seed = first_seed + part; seed < first_seed + num_seeds; seed += num_parts) {
    ClusterOptions options = ChosenOptionsOf(seed);
    failing.Begin(options, ReplayOf(seed));
    const ClusterResult result = RunCluster(options);
    if (!result.violation.empty()) {
      failing.Print(result);
      FAIL() << ReplayOf(seed);
    }
    Add(result, total);
    ++num_run;
  }
  failing.End();
  Print(num_run, total);
  CheckRate(num_run, total, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  if (num_run < 50) return;
  // The run is worth nothing if the faults it is about did not happen.
  EXPECT_GT(total.healed, static_cast<int>(num_run / 20));
  EXPECT_GT(total.coordinator_kills, 0);
  EXPECT_GT(total.coordinator_freezes, 0);
  EXPECT_GT(total.partitions, 0);
  EXPECT_GT(total.worker_kills, 0);
  EXPECT_GT(total.workers_gone, 0);
  EXPECT_GT(total.given_up, 0);
  EXPECT_GT(total.shrunk_steps, 0);
  EXPECT_GT(total.returns, 0);
  EXPECT_GT(total.held_out, 0);
  EXPECT_GT(total.loss_stops, 0);
  EXPECT_GT(total.told_of_loss, 0);
  EXPECT_GT(total.loss_restarts, 0);
  EXPECT_GT(total.outlived_refused, 0);
  EXPECT_GT(total.obsolete_copies, 0);
  EXPECT_GT(total.takeovers, static_cast<int>(num_run));
  EXPECT_GT(total.reopened_rounds, 0);
  EXPECT_GT(total.skipped_steps, 0);
  EXPECT_GT(total.group_changes, 0);
  // ModelSizedOptionsOf deletes no job.
  EXPECT_EQ(total.deletions > 0, !model_size);
  EXPECT_GT(total.rollbacks, 0);
  EXPECT_GT(total.steps_lost, 0u);
  EXPECT_GT(total.rewinds, 0);
  EXPECT_GT(total.checkpoints, 0);
  EXPECT_GT(total.torn_checkpoints, 0);
  EXPECT_GT(total.restores, 0);
  EXPECT_GT(total.record_reads, 0);
  EXPECT_GT(total.shard_kills, 0);
  EXPECT_GT(total.power_cuts, 0);
  EXPECT_GT(total.blackouts, 0);
  EXPECT_GT(total.sectors_lost, 0u);
  EXPECT_GT(total.torn_tails, 0);
  EXPECT_GT(total.full_refusals, 0u);
  EXPECT_GT(total.disk_failures, 0);
  EXPECT_GT(total.deaths_in_recovery, 0);
  EXPECT_GT(total.flips_found, 0);
  EXPECT_GT(total.snapshots, 0);
  EXPECT_GT(total.restored_snapshots, 0);
  EXPECT_GT(total.truncations, 0);
  EXPECT_GT(total.disks_checked, 0);
}

TEST(StepSimulationTest, SameSeedDoesTheSame) {
  for (uint64_t seed : {3, 17, 40}) {
    const ClusterResult first = RunCluster(OptionsOf(seed));
    const ClusterResult second = RunCluster(OptionsOf(seed));
    EXPECT_EQ(first.event_hash, second.event_hash);
    EXPECT_EQ(first.num_events, second.num_events);
    EXPECT_NE(first.event_hash, RunCluster(OptionsOf(seed + 1)).event_hash);
  }
}

// The simulation must be able to fail.
void ExpectFound(SeededBug bug) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    ClusterOptions options = OptionsOf(seed);
    options.bug = bug;
    options.num_shards = std::max(options.num_shards, 2);
    if (const ClusterResult result = RunCluster(options); !result.violation.empty()) {
      std::cout << "found at seed " << seed << ": " << result.violation << std::endl;
      return;
    }
  }
  ADD_FAILURE() << "not found within 100 seeds";
}

TEST(StepSimulationTest, FindsAShardThatForgets) { ExpectFound(SeededBug::kForgetfulShard); }

TEST(StepSimulationTest, FindsAWorkerThatChangesItsGradient) {
  ExpectFound(SeededBug::kChangedGradient);
}

}  // namespace
}  // namespace kaon::simulation

// Each test shard runs its part of the seeds; the first one also runs the tests without seeds.
// GoogleTest would distribute whole tests.
void TakePart() {
  const char* shards = std::getenv("TEST_TOTAL_SHARDS");
  const char* index = std::getenv("TEST_SHARD_INDEX");
  if (shards == nullptr || index == nullptr) return;
  unsetenv("GTEST_TOTAL_SHARDS");
  unsetenv("GTEST_SHARD_INDEX");
  if (!absl::SimpleAtoi(shards, &kaon::simulation::num_parts) ||
      !absl::SimpleAtoi(index, &kaon::simulation::part)) {
    std::cerr << "TEST_TOTAL_SHARDS or TEST_SHARD_INDEX is no number" << std::endl;
    std::exit(2);
  }
  if (kaon::simulation::part > 0) setenv("GTEST_FILTER", "*KeepsEveryPromise*", 1);
}

int main(int argc, char** argv) {
  TakePart();
  testing::InitGoogleTest(&argc, argv);
  // A static object, because code that dies after main needs it, too.
  static kaon::simulation::FailingSeed failing;
  kaon::simulation::seed_in_progress = &failing;
  failing.PrintAtDeath();
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    bool known = argument == "--trace" || argument == "--model_size";
    if (int bug = 0; absl::ConsumePrefix(&argument, "--bug=")) {
      known = absl::SimpleAtoi(argument, &bug) && bug >= 0 &&
              bug <= static_cast<int>(kaon::simulation::kLastSeededBug);
      kaon::simulation::seeded_bug = static_cast<kaon::simulation::SeededBug>(bug);
    }
    if (argument == "--trace") kaon::simulation::trace = true;
    if (argument == "--model_size") kaon::simulation::model_size = true;
#ifdef KAON_PROTOCOL_MUTATIONS
    if (absl::ConsumePrefix(&argument, "--mutation=")) {
      known = absl::SimpleAtoi(argument, &kaon::chosen_mutation);
    }
#endif
    if (absl::ConsumePrefix(&argument, "--seeds=")) {
      known = absl::SimpleAtoi(argument, &kaon::simulation::num_seeds);
    } else if (absl::ConsumePrefix(&argument, "--first_seed=")) {
      known = absl::SimpleAtoi(argument, &kaon::simulation::first_seed);
    } else if (absl::ConsumePrefix(&argument, "--least_rate=")) {
      known = absl::SimpleAtoi(argument, &kaon::simulation::least_rate);
    }
    if (!known) {
      std::cerr << "unknown argument " << argv[i] << std::endl;
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
