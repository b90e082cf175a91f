// Runs the whole step protocol over many seeds. `--seeds=N --first_seed=S` choose them; a failing
// seed prints the command that replays it with its trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/simulation/cluster.h"

namespace kaon::simulation {
namespace {

uint64_t num_seeds = 200;
uint64_t first_seed = 1;
bool trace = false;

// Shapes of clusters vary with the seed, so that few seeds cover many.
ClusterOptions OptionsOf(uint64_t seed) {
  ClusterOptions options;
  options.seed = seed;
  options.num_shards = 1 + seed % 4;
  options.num_coordinators = 1 + (seed / 4) % 3;
  options.num_workers = 1 + (seed / 12) % 3;
  options.loss = (seed % 3) * 0.03;
  options.trace = trace;
  return options;
}

std::string Replay(uint64_t seed) {
  return absl::StrCat("replay with: step_simulation_test --first_seed=", seed,
                      " --seeds=1 --trace");
}

TEST(StepSimulationTest, KeepsEveryPromiseAndProgressesUnderFaults) {
  ClusterResult total;
  for (uint64_t seed = first_seed; seed < first_seed + num_seeds; ++seed) {
    const ClusterResult result = RunCluster(OptionsOf(seed));
    ASSERT_EQ(result.violation, "") << "seed " << seed << "; " << Replay(seed);
    total.num_events += result.num_events;
    total.coordinator_kills += result.coordinator_kills;
    total.coordinator_freezes += result.coordinator_freezes;
    total.partitions += result.partitions;
    total.worker_kills += result.worker_kills;
    total.takeovers += result.takeovers;
    total.reopened_rounds += result.reopened_rounds;
    total.skipped_steps += result.skipped_steps;
    total.group_changes += result.group_changes;
    total.record_reads += result.record_reads;
  }
  std::cout << num_seeds << " seeds, " << total.num_events << " events, " << total.coordinator_kills
            << " coordinators killed, " << total.coordinator_freezes << " frozen, "
            << total.partitions << " cut off, " << total.worker_kills << " workers killed, "
            << total.takeovers << " takeovers, " << total.reopened_rounds
            << " pushes in reopened rounds, " << total.skipped_steps << " skipped steps, "
            << total.group_changes << " changes of groups, " << total.record_reads
            << " records read by new holders" << std::endl;
  if (num_seeds < 50) return;
  // The run is worth nothing if the faults it is about did not happen.
  EXPECT_GT(total.coordinator_kills, 0);
  EXPECT_GT(total.coordinator_freezes, 0);
  EXPECT_GT(total.partitions, 0);
  EXPECT_GT(total.worker_kills, 0);
  EXPECT_GT(total.takeovers, static_cast<int>(num_seeds));
  EXPECT_GT(total.reopened_rounds, 0);
  EXPECT_GT(total.skipped_steps, 0);
  EXPECT_GT(total.group_changes, 0);
  EXPECT_GT(total.record_reads, 0);
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

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    bool known = argument == "--trace";
    if (known) kaon::simulation::trace = true;
    if (absl::ConsumePrefix(&argument, "--seeds=")) {
      known = absl::SimpleAtoi(argument, &kaon::simulation::num_seeds);
    } else if (absl::ConsumePrefix(&argument, "--first_seed=")) {
      known = absl::SimpleAtoi(argument, &kaon::simulation::first_seed);
    }
    if (!known) {
      std::cerr << "unknown argument " << argv[i] << std::endl;
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
