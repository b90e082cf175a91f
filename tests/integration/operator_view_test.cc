// The view of operators on a job that trains on real servers. Showing it changes nothing of the
// job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "server/admin_cli/status_report.h"
#include "tests/integration/job_parts.h"
#include "tests/integration/trained_job.h"

namespace kaon {
namespace {

using testing::AddGroup;
using testing::AddParameter;
using ::testing::ContainsRegex;
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
  // Speculation runs whenever the step thread has nothing else to do.
  size_t num_speculations = 0;
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
      num_speculations += names.erase("speculate");
      EXPECT_EQ(names, (std::set<std::string>{"receive", "fold", "journal", "prepare", "decide",
                                              "apply", "pull"}))
          << "step " << step.step() << " of shard " << shard.shard();
    }
  }
  EXPECT_GT(num_speculations, 0u);
}

// P11: 1000 times the gradient, which the clip of the whole hides from the norms of the step.
TEST(OperatorViewTest, AWorkerWhoseGradientsJumpIsNamedAndCounted) {
  constexpr uint32_t kBrokenRank = 1;
  TrainingPlan plan = ThreeWorkers();
  plan.job.set_max_grad_norm(1);
  plan.gradient = [job = plan.job](uint32_t id, uint32_t rank, uint64_t step) {
    std::vector<float> gradient = DrawTensor(job, id, 100 * step + rank);
    if (rank == kBrokenRank && step == kSteps - 1) {
      for (float& value : gradient) value *= 1000;
    }
    return gradient;
  };
  const TrainedJob trained = TrainOnShards(plan, 2);
  for (const StepRecord& record : trained.records) EXPECT_TRUE(record.applied) << record.reason;
  // Output of `kaonctl status`.
  EXPECT_THAT(admin_cli::StatusText(trained.status),
              ContainsRegex("WORKER  ATTEMPT +BEGUN STEP +GRAD NORM  OUTLIERS\n"
                            "     0  [0-9.]+ +- +[0-9.]+ +0\n"
                            "     1  [0-9.]+ +- +[0-9.]+ +1\n"
                            "     2  [0-9.]+ +- +[0-9.]+ +0\n"));
  EXPECT_EQ(admin_cli::StatusJson(trained.status)["events"]["grad_norm_outlier"], 1);
}

}  // namespace
}  // namespace kaon
