// The stages of a step overlap on real servers, by the times that `kaonctl steps --phases` shows.
// No stage waits for the end of the one before.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/integration/job_parts.h"
#include "tests/integration/trained_job.h"

namespace kaon {
namespace {

using testing::AddGroup;
using testing::AddParameter;
using testing::DrawTensor;
using testing::TrainedJob;
using testing::TrainingPlan;

// Enough that some steps overlap as they should while other processes use the processors.
constexpr uint64_t kSteps = 40;

// The matrices are so large that a stage takes milliseconds, and so many that stages overlap.
TrainingPlan ManyMatrices() {
  TrainingPlan plan;
  plan.job.set_name("pipelined");
  plan.job.set_world_size(2);
  plan.job.set_matrix_group("muon");
  plan.job.set_scalar_group("adamw");
  AddGroup(plan.job, "muon", v1::RULE_MUON, 0.02);
  AddGroup(plan.job, "adamw", v1::RULE_ADAMW, 0.01);
  for (int i = 0; i < 24; ++i) {
    AddParameter(plan.job, "layers." + std::to_string(i) + ".weight", {256, 384});
  }
  AddParameter(plan.job, "norm.weight", {384});
  plan.steps = kSteps;
  plan.gradient = [job = plan.job](uint32_t id, uint32_t rank, uint64_t step) {
    return DrawTensor(job, id, 100 * step + rank);
  };
  return plan;
}

// Returns the number of trained steps of a shard in which `later` began before the last quarter of
// `earlier`.
int NumOverlaps(const v1::ShardPhases& shard, const std::string& earlier,
                const std::string& later) {
  int overlaps = 0;
  for (const v1::StepPhases& step : shard.steps()) {
    std::map<std::string, v1::Phase> phases;
    for (const v1::Phase& phase : step.phases()) phases[phase.name()] = phase;
    if (step.step() == 0 || phases.count(earlier) == 0 || phases.count(later) == 0) continue;
    const uint64_t begin = phases[earlier].begin_microseconds();
    const uint64_t end = phases[earlier].end_microseconds();
    overlaps += phases[later].begin_microseconds() < end - (end - begin) / 4;
  }
  return overlaps;
}

// Times summed over all steps.
struct PhaseTimes {
  uint64_t busy = 0;
  uint64_t active = 0;
  uint64_t hidden = 0;
};

PhaseTimes TimesOf(const v1::ShardPhases& shard, const std::string& name) {
  PhaseTimes times;
  for (const v1::StepPhases& step : shard.steps()) {
    for (const v1::Phase& phase : step.phases()) {
      if (phase.name() != name) continue;
      times.busy += phase.busy_microseconds();
      times.active += phase.active_microseconds();
      times.hidden += phase.hidden_microseconds();
    }
  }
  return times;
}

TEST(PipelinedStepTest, NoStageWaitsForTheEndOfTheOneBefore) {
  const TrainedJob trained = TrainOnShards(ManyMatrices(), 2);
  ASSERT_EQ(trained.history.phases_size(), 2);
  for (const v1::ShardPhases& shard : trained.history.phases()) {
    SCOPED_TRACE(shard.shard());
    // Chunks are folded as they arrive, unless the machine was busy elsewhere at that moment.
    // ShardChannelConformance shows that folding precedes the next chunk.
    EXPECT_GE(NumOverlaps(shard, "receive", "fold"), static_cast<int>(kSteps) / 2);
    // The rest depends on how busy the machine is, so some steps suffice. While other gradients
    // still arrive, the shard finishes and writes sums and orthogonalizes matrices.
    EXPECT_GT(NumOverlaps(shard, "receive", "prepare"), 0);
    EXPECT_GT(NumOverlaps(shard, "receive", "journal"), 0);
    EXPECT_GT(NumOverlaps(shard, "receive", "speculate"), 0);
    // The first weights are read while the last are still computed.
    EXPECT_GT(NumOverlaps(shard, "apply", "pull"), 0);
    for (const char* phase : {"receive", "prepare", "journal", "pull"}) {
      EXPECT_GT(TimesOf(shard, phase).hidden, 0u) << phase;
    }
    // The journal's thread writes a gradient while the step's thread hands over the next.
    const PhaseTimes journal = TimesOf(shard, "journal");
    EXPECT_GT(journal.busy, journal.active);
  }
}

}  // namespace
}  // namespace kaon
