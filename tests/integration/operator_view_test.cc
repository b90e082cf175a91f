// What operators are shown of a job that trains on real servers, and that showing it changes
// nothing of the job.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/integration/job_parts.h"
#include "tests/integration/trained_job.h"

namespace kaon {
namespace {

using testing::AddGroup;
using testing::AddParameter;
using testing::DrawTensor;
using testing::TrainedJob;
using testing::TrainingPlan;

constexpr uint64_t kSteps = 11;

TrainingPlan ThreeWorkers() {
  TrainingPlan plan;
  plan.job.set_name("watched");
  plan.job.set_world_size(3);
  plan.job.set_matrix_group("muon");
  plan.job.set_scalar_group("adamw");
  AddGroup(plan.job, "muon", v1::RULE_MUON, 0.02);
  AddGroup(plan.job, "adamw", v1::RULE_ADAMW, 0.01);
  AddParameter(plan.job, "a.weight", {6, 4});
  AddParameter(plan.job, "b.weight", {4, 8});
  AddParameter(plan.job, "b.bias", {4});
  plan.steps = kSteps;
  plan.gradient = [job = plan.job](uint32_t id, uint32_t rank, uint64_t step) {
    return DrawTensor(job, id, 100 * step + rank);
  };
  return plan;
}

TEST(OperatorViewTest, EveryShardTellsWhereTheTimeOfEachStepWent) {
  const TrainedJob trained = TrainOnShards(ThreeWorkers(), 2);
  ASSERT_EQ(trained.history.phases_size(), 2);
  for (const v1::ShardPhases& shard : trained.history.phases()) {
    // The initial weights too.
    ASSERT_EQ(shard.steps_size(), static_cast<int>(kSteps) + 1);
    for (const v1::StepPhases& step : shard.steps()) {
      std::set<std::string> names;
      uint64_t begin = 0;
      for (const v1::Phase& phase : step.phases()) {
        names.insert(phase.name());
        EXPECT_GE(phase.begin_microseconds(), begin);
        begin = phase.begin_microseconds();
        EXPECT_GE(phase.end_microseconds(), begin);
        EXPECT_LE(phase.end_microseconds(), step.total_microseconds());
      }
      EXPECT_EQ(names, (std::set<std::string>{"receive", "fold", "journal", "prepare", "decide",
                                              "apply", "pull"}))
          << "step " << step.step() << " of shard " << shard.shard();
    }
  }
}

}  // namespace
}  // namespace kaon
