// The service and the path without servers make the same decisions and the same weights, bit for
// bit, on any number of shards. All rules about norms, skips, schedules, scales and missing
// gradients are in use at once ([P1]-[P3], [T1]-[T9] of numerics.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/job_parts.h"
#include "tests/integration/trained_job.h"

namespace kaon {
namespace {

using testing::AddGroup;
using testing::AddParameter;
using testing::DrawTensor;
using testing::ExpectEqual;
using ::testing::HasSubstr;
using testing::SetSchedule;
using testing::TrainedJob;
using testing::TrainingPlan;
using testing::TrainOnShards;
using testing::TrainWithoutServers;

constexpr uint64_t kOverflowStep = 4;
constexpr uint64_t kSpikeStep = 6;
constexpr uint64_t kSteps = 9;

// Nine parameters in four groups and two norm groups; scope `all`, a floor, a threshold, a dynamic
// loss scaler.
v1::JobDefinition RichJob() {
  v1::JobDefinition job;
  job.set_name("rich");
  job.set_world_size(2);
  job.set_matrix_group("muon");
  job.set_scalar_group("adamw");
  job.set_max_grad_norm(1);
  job.set_clip_scope(v1::CLIP_SCOPE_ALL);
  job.set_clip_floor(1e-3);
  job.set_grad_norm_skip_threshold(1e4);
  job.mutable_loss_scaler()->set_dynamic(true);
  job.mutable_loss_scaler()->set_initial_scale(1024);
  job.mutable_loss_scaler()->set_growth_interval(3);
  job.mutable_loss_scaler()->set_hysteresis(1);
  v1::NormGroup& mtp = *job.add_norm_groups();
  mtp.set_name("mtp");
  mtp.set_max_grad_norm(0.5);
  SetSchedule(v1::SCHEDULE_KIND_COSINE, 2, 8, 0, AddGroup(job, "muon", v1::RULE_MUON, 0.02));
  SetSchedule(v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY, 1, 9, 4,
              AddGroup(job, "adamw", v1::RULE_ADAMW, 0.01));
  v1::ParameterGroup& experts = AddGroup(job, "experts", v1::RULE_MUON, 0.01);
  experts.set_missing_gradient(v1::MISSING_GRADIENT_ZERO);
  experts.set_clip_policy(v1::CLIP_POLICY_CLIP);
  SetSchedule(v1::SCHEDULE_KIND_LINEAR, 0, 12, 0, AddGroup(job, "sparse", v1::RULE_ADAMW, 0.003));
  AddParameter(job, "embed.weight", {5, 4});
  AddParameter(job, "head.weight", {5, 4}, "adamw").set_tied_to("embed.weight");
  AddParameter(job, "hidden.weight", {6, 4});
  AddParameter(job, "wide.weight", {4, 9}).set_lr_multiplier(0.5);
  AddParameter(job, "hidden.bias", {6});
  AddParameter(job, "expert.weight", {4, 4}, "experts");
  AddParameter(job, "sparse.bias", {7}, "sparse").set_weight_decay_multiplier(0);
  AddParameter(job, "mtp.bias", {3}).set_norm_group("mtp");
  AddParameter(job, "table", {5}).set_frozen(true);
  return job;
}

bool IsNamed(const v1::JobDefinition& job, uint32_t id, const char* name) {
  return job.parameters(static_cast<int>(id)).name() == name;
}

TrainingPlan RichPlan() {
  TrainingPlan plan;
  plan.job = RichJob();
  plan.steps = kSteps;
  plan.gradient = [job = plan.job](uint32_t id, uint32_t rank, uint64_t step) {
    // A zero-token expert (edge 29), and a parameter that one rank, or all, have nothing for.
    const bool expert = IsNamed(job, id, "expert.weight") && step % 3 == 2;
    const bool sparse = IsNamed(job, id, "sparse.bias") && (step % 2 == 0 || rank == 0);
    if (expert || (sparse && step != 3)) return std::vector<float>();
    std::vector<float> gradient = DrawTensor(job, id, 10 * step + rank);
    if (step == kSpikeStep && IsNamed(job, id, "hidden.bias")) gradient[0] = 1e6;
    if (step == kOverflowStep && rank == 1 && IsNamed(job, id, "wide.weight")) {
      gradient[3] = std::numeric_limits<float>::infinity();
    }
    return gradient;
  };
  return plan;
}

// [P2], edges 16 and 27: fewer parameters than shards included.
class NumericsServiceTest : public ::testing::TestWithParam<int> {};

TEST_P(NumericsServiceTest, EndsInTheWeightsOfThePathWithoutServers) {
  const TrainingPlan plan = RichPlan();
  const TrainedJob expected = TrainWithoutServers(plan);
  const TrainedJob service = TrainOnShards(plan, GetParam());
  ExpectEqual(plan.job, service, expected);
  const std::vector<StepRecord>& records = service.records;
  EXPECT_THAT(records[kOverflowStep - 1].reason, HasSubstr("wide.weight from rank 1"));
  EXPECT_THAT(records[kSpikeStep - 1].reason, HasSubstr("grad_norm_skip_threshold 10000"));
  // [T2b]: grown after three steps, halved by the overflow.
  EXPECT_EQ(records[2].next_loss_scale, 2048);
  EXPECT_EQ(records[kOverflowStep - 1].next_loss_scale, 1024);
  // Edge 52.
  EXPECT_EQ(records.back().applied_updates, kSteps - 2);
  EXPECT_LT(records[0].norm_groups[0].clip_factor, 1);
  EXPECT_LT(records[0].norm_groups[1].clip_factor, 1);
}

INSTANTIATE_TEST_SUITE_P(Shards, NumericsServiceTest, ::testing::Values(1, 2, 3, 7, 11));

// A shard finds a finite gradient that is too large for a step, and all shards skip the step
// ([T3]). Without clipping no norm is read for it ([T5]).
TEST(NumericsServiceTest, AGradientTooLargeToBeSteppedWithIsSkippedAlike) {
  TrainingPlan plan = RichPlan();
  plan.steps = 3;
  plan.job.set_max_grad_norm(0);
  plan.job.mutable_norm_groups(0)->set_max_grad_norm(0);
  plan.job.clear_grad_norm_skip_threshold();
  plan.job.set_report_norms(v1::REPORT_NORMS_OFF);
  plan.gradient = [job = plan.job](uint32_t id, uint32_t rank, uint64_t step) {
    std::vector<float> gradient = DrawTensor(job, id, 10 * step + rank);
    if (step == 2 && rank == 1 && IsNamed(job, id, "wide.weight")) gradient[3] = 1e30f;
    return gradient;
  };
  const TrainedJob expected = TrainWithoutServers(plan);
  const TrainedJob service = TrainOnShards(plan, 3);
  ExpectEqual(plan.job, service, expected);
  EXPECT_THAT(service.records[1].reason, HasSubstr("gradient of parameter wide.weight has an"));
  EXPECT_EQ(service.records[1].next_loss_scale, 512);
  EXPECT_FALSE(service.records[1].grad_norm.has_value());
  EXPECT_EQ(service.state_digests[1], service.state_digests[0]);
  EXPECT_TRUE(service.records[2].applied);
}

// A job whose one SGD group has a learning rate near the largest fp32 number.
TrainingPlan HugeRatePlan(double momentum, decltype(TrainingPlan::gradient) gradient) {
  TrainingPlan plan;
  plan.job.set_name("huge");
  plan.job.set_world_size(1);
  plan.job.set_scalar_group("sgd");
  plan.job.set_max_grad_norm(0);
  v1::ParameterGroup& sgd = AddGroup(plan.job, "sgd", v1::RULE_SGD, 3e38);
  sgd.set_weight_decay(0);
  sgd.mutable_sgd()->set_momentum(momentum);
  AddParameter(plan.job, "first.bias", {5});
  AddParameter(plan.job, "second.bias", {700});
  plan.gradient = std::move(gradient);
  return plan;
}

// [T10]: foreseen by the decision, which names the parameter; nothing changes on any shard.
TEST(NumericsServiceTest, AnUpdateThatWouldNotBeFiniteSkipsTheStep) {
  TrainingPlan plan = HugeRatePlan(0, [](uint32_t id, uint32_t, uint64_t step) {
    return std::vector<float>(id == 0 ? 5 : 700, step == 2 && id == 1 ? 1e18f : 0.0f);
  });
  plan.steps = 3;
  const TrainedJob service = TrainOnShards(plan, 2);
  ExpectEqual(plan.job, service, TrainWithoutServers(plan));
  EXPECT_TRUE(service.records[0].applied);
  EXPECT_FALSE(service.records[1].applied);
  EXPECT_THAT(service.records[1].reason, HasSubstr("update of parameter second.bias takes"));
  EXPECT_EQ(service.state_digests[1], service.state_digests[0]);
  EXPECT_TRUE(service.records[2].applied);
}

// A momentum that no vote reports takes the weights beyond fp32 at step 5 ([T10]). The step is
// applied, and the parameter keeps its weights, with servers as without.
TEST(NumericsServiceTest, AnUpdateThatIsNotFiniteAfterItsDecisionKeepsTheWeights) {
  TrainingPlan plan = HugeRatePlan(0.99, [](uint32_t id, uint32_t, uint64_t) {
    return std::vector<float>(id == 0 ? 5 : 700, id == 0 ? 0.0f : 0.1f);
  });
  plan.steps = 6;
  const TrainedJob service = TrainOnShards(plan, 2);
  ExpectEqual(plan.job, service, TrainWithoutServers(plan));
  for (const StepRecord& record : service.records) EXPECT_TRUE(record.applied) << record.reason;
  for (const float weight : service.weights[1]) {
    EXPECT_LT(weight, -2e38f);
    EXPECT_TRUE(std::isfinite(weight));
  }
}

// Edges 10, 11, [T3], [T4]: weights, momentum, moments and counters are those of before, to the
// bit.
TEST(NumericsServiceTest, ASkippedStepLeavesEveryStateAsItWas) {
  const TrainedJob service = TrainOnShards(RichPlan(), 2);
  const std::vector<uint64_t>& digests = service.state_digests;
  for (uint64_t step = 2; step <= kSteps; ++step) {
    const bool skipped = step == kOverflowStep || step == kSpikeStep;
    EXPECT_EQ(digests[step - 1] == digests[step - 2], skipped) << step;
  }
}

// Edge 13: the loss scale changes only the gradients that the workers send ([T2]).
TEST(NumericsServiceTest, WeightsDoNotDependOnTheLossScale) {
  TrainingPlan plan = RichPlan();
  plan.steps = kOverflowStep - 1;
  const TrainedJob scaled = TrainOnShards(plan, 2);
  plan.job.clear_loss_scaler();
  EXPECT_EQ(TrainOnShards(plan, 2).weights, scaled.weights);
}

// Edge 17: rates, norms and rules are found by the group, not by its place in the list.
TEST(NumericsServiceTest, WeightsDoNotDependOnTheOrderOfGroups) {
  TrainingPlan plan = RichPlan();
  const TrainedJob trained = TrainOnShards(plan, 2);
  std::reverse(plan.job.mutable_groups()->pointer_begin(),
               plan.job.mutable_groups()->pointer_end());
  ASSERT_EQ(plan.job.groups(0).rule(), v1::RULE_ADAMW);
  EXPECT_EQ(TrainOnShards(plan, 2).weights, trained.weights);
}

// Edge 14, [T1]: one update per step, however many micro-batches it is pushed in.
TEST(NumericsServiceTest, WeightsDoNotDependOnTheMicroBatches) {
  TrainingPlan plan = RichPlan();
  const TrainedJob whole = TrainOnShards(plan, 2);
  plan.micro_batches = 4;
  const TrainedJob cut = TrainOnShards(plan, 2);
  EXPECT_EQ(cut.weights, whole.weights);
  EXPECT_EQ(cut.state_digests, whole.state_digests);
}

// Edge 41: a parameter without a gradient keeps its weights, state and count of updates. If its
// group says so, zeros stand in for the gradient ([T7]).
TEST(NumericsServiceTest, AMissingGradientSkipsOrCountsAsZeros) {
  TrainingPlan plan = RichPlan();
  plan.job.clear_grad_norm_skip_threshold();
  plan.steps = 2;
  const TrainedJob one = [&] {
    TrainingPlan first = plan;
    first.steps = 1;
    return TrainWithoutServers(first);
  }();
  const TrainedJob two = TrainOnShards(plan, 2);
  for (int id = 0; id < plan.job.parameters_size(); ++id) {
    const std::string& name = plan.job.parameters(id).name();
    const bool still = name == "sparse.bias" || name == "table";
    EXPECT_EQ(one.weights[id] == two.weights[id], still) << name;
  }
}

}  // namespace
}  // namespace kaon
