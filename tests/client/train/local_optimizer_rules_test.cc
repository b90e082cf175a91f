// Effects of a step on the weights by the rules of numerics.md about clipping, skips, schedules,
// scales and missing gradients. One worker, without servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "client/train/local_optimizer.h"
#include "client/train/random.h"

namespace kaon::train {
namespace {

constexpr int kMatrix = 0;
constexpr int kVector = 1;

v1::JobDefinition MatrixAndVector() {
  v1::JobDefinition job;
  job.set_name("rules");
  job.set_world_size(1);
  job.set_matrix_group("muon");
  job.set_scalar_group("adamw");
  v1::ParameterGroup& muon = *job.add_groups();
  muon.set_name("muon");
  muon.set_rule(v1::RULE_MUON);
  muon.set_lr(0.02);
  v1::ParameterGroup& adamw = *job.add_groups();
  adamw.set_name("adamw");
  adamw.set_rule(v1::RULE_ADAMW);
  adamw.set_lr(0.01);
  for (const char* name : {"matrix", "vector"}) {
    v1::ParameterSpec& parameter = *job.add_parameters();
    parameter.set_name(name);
    parameter.set_dtype(v1::DTYPE_FLOAT32);
  }
  job.mutable_parameters(kMatrix)->add_shape(6);
  job.mutable_parameters(kMatrix)->add_shape(4);
  job.mutable_parameters(kVector)->add_shape(5);
  return job;
}

using Tensors = std::vector<std::vector<float>>;

Tensors Random(uint64_t stream, float scale = 1) {
  Tensors tensors = {std::vector<float>(24), std::vector<float>(5)};
  for (size_t id = 0; id < tensors.size(); ++id) {
    for (size_t i = 0; i < tensors[id].size(); ++i) {
      tensors[id][i] = scale * static_cast<float>(2 * UnitUniform(stream, id, i) - 1);
    }
  }
  return tensors;
}

class Trainer {
 public:
  explicit Trainer(const v1::JobDefinition& job)
      : optimizer_(
            LocalOptimizer::Create(job, *kernels::CreateBackend(Options()), Random(1)).value()) {}

  kaon::StepRecord Step(const Tensors& gradients, std::vector<uint32_t> missing = {}) {
    TensorBuffers buffers;
    Encode(gradients, &buffers);
    StepContribution contribution;
    contribution.step = optimizer_.step() + 1;
    contribution.gradients = &buffers;
    contribution.missing_parameters = std::move(missing);
    return optimizer_.Step({contribution});
  }
  std::vector<float> weights(int id) const { return optimizer_.weights()[id]; }
  LocalOptimizer& optimizer() { return optimizer_; }

 private:
  static kernels::BackendOptions Options() {
    kernels::BackendOptions options;
    options.gemm = "reference";
    return options;
  }

  LocalOptimizer optimizer_;
};

double Norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum);
}

// [C9], edge 13: the raw gradient is scaled, before momentum and Newton-Schulz: an update of Muon's
// has its full size however small the factor. A system that scales the update instead divides it.
TEST(LocalOptimizerRulesTest, ClippingScalesTheGradientAndNotTheUpdate) {
  v1::JobDefinition job = MatrixAndVector();
  Trainer plain(job);
  job.set_max_grad_norm(1e-4);
  job.mutable_groups(kMatrix)->set_clip_policy(v1::CLIP_POLICY_CLIP);
  Trainer clipped(job);
  const std::vector<float> before = plain.weights(kMatrix);
  plain.Step(Random(2));
  EXPECT_LT(clipped.Step(Random(2)).norms[kMatrix].clip_factor, 1e-3);
  const double size = Distance(before, plain.weights(kMatrix));
  EXPECT_LT(Distance(plain.weights(kMatrix), clipped.weights(kMatrix)), 1e-5 * size);
}

// [C7], edge 46: a constant factor changes nothing in Muon; one that varies re-weights the steps
// within the momentum, and so damps spikes.
TEST(LocalOptimizerRulesTest, AVaryingFactorDampsSpikesInMomentum) {
  const auto run = [](bool clips, float spike) {
    v1::JobDefinition job = MatrixAndVector();
    if (clips) {
      job.set_max_grad_norm(1e-3);
      job.mutable_groups(kMatrix)->set_clip_policy(v1::CLIP_POLICY_CLIP);
    }
    Trainer trainer(job);
    for (uint64_t step = 0; step < 6; ++step) {
      Tensors gradients = Random(10 + step);
      const double scale = (step == 2 ? spike : 1) / Norm(gradients[kMatrix]);
      for (float& value : gradients[kMatrix]) value *= static_cast<float>(scale);
      for (float& value : gradients[kVector]) value = 0;
      trainer.Step(gradients);
    }
    return trainer.weights(kMatrix);
  };
  const double moved = Distance(run(false, 1), Random(1)[kMatrix]);
  EXPECT_LT(Distance(run(true, 1), run(false, 1)), 1e-4 * moved);
  EXPECT_GT(Distance(run(false, 100), run(false, 1)), 0.1 * moved);
  EXPECT_LT(Distance(run(true, 100), run(true, 1)), 1e-4 * moved);
}

// [C5]: within the limit nothing changes by a bit.
TEST(LocalOptimizerRulesTest, AFactorOfOneLeavesEveryBit) {
  v1::JobDefinition job = MatrixAndVector();
  Trainer plain(job);
  job.set_max_grad_norm(1e6);
  Trainer limited(job);
  plain.Step(Random(2));
  limited.Step(Random(2));
  EXPECT_EQ(plain.optimizer().weights(), limited.optimizer().weights());
}

// Edge 13: the size of an update does not follow from loss scale or limit.
TEST(LocalOptimizerRulesTest, TheLossScaleIsDividedOut) {
  v1::JobDefinition job = MatrixAndVector();
  Trainer plain(job);
  job.mutable_loss_scaler()->set_initial_scale(4096);
  Trainer scaled(job);
  EXPECT_EQ(scaled.optimizer().loss_scale(), 4096);
  plain.Step(Random(2));
  EXPECT_EQ(scaled.Step(Random(2, 4096)).next_loss_scale, 4096);
  EXPECT_EQ(plain.optimizer().weights(), scaled.optimizer().weights());
}

// Edge 11: an overflow is seen, and no momentum remembers it, Nesterov or not; the scale falls.
TEST(LocalOptimizerRulesTest, AnOverflowTouchesNoMomentum) {
  for (const bool nesterov : {false, true}) {
    v1::JobDefinition job = MatrixAndVector();
    job.mutable_groups(kMatrix)->mutable_muon()->set_nesterov(nesterov);
    job.mutable_loss_scaler()->set_dynamic(true);
    job.mutable_loss_scaler()->set_hysteresis(1);
    job.mutable_loss_scaler()->set_initial_scale(8);
    Trainer with_overflow(job);
    Trainer without(job);
    Tensors overflowed = Random(2);
    overflowed[kMatrix][5] = std::numeric_limits<float>::infinity();
    with_overflow.Step(Random(3, 8));
    EXPECT_FALSE(with_overflow.Step(overflowed).applied);
    EXPECT_EQ(with_overflow.optimizer().loss_scale(), 4);
    with_overflow.Step(Random(4, 4));
    without.Step(Random(3, 8));
    without.Step(Random(4, 8));
    EXPECT_EQ(with_overflow.optimizer().weights(), without.optimizer().weights());
  }
}

// Edges 20, 52: each group by its own schedule; a skipped step does not advance it.
TEST(LocalOptimizerRulesTest, SchedulesGoByAppliedSteps) {
  v1::JobDefinition job = MatrixAndVector();
  v1::Schedule& schedule = *job.mutable_groups(kVector)->mutable_schedule();
  schedule.set_kind(v1::SCHEDULE_KIND_LINEAR);
  schedule.set_total_steps(2);
  Trainer scheduled(job);
  job.mutable_groups(kVector)->clear_schedule();
  Trainer constant(job);
  Tensors poisoned = Random(2);
  poisoned[kVector][0] = std::numeric_limits<float>::quiet_NaN();
  // Factors 1, 1/2, 0, of applied steps alone.
  for (Trainer* trainer : {&scheduled, &constant}) trainer->Step(poisoned);
  for (Trainer* trainer : {&scheduled, &constant}) trainer->Step(Random(3));
  EXPECT_EQ(scheduled.weights(kVector), constant.weights(kVector));
  const std::vector<float> before = scheduled.weights(kVector);
  for (Trainer* trainer : {&scheduled, &constant}) trainer->Step(poisoned);
  for (Trainer* trainer : {&scheduled, &constant}) trainer->Step(Random(4));
  const std::vector<float> halved = scheduled.weights(kVector);
  EXPECT_NEAR(Distance(before, halved), Distance(before, constant.weights(kVector)) / 2, 1e-6);
  for (Trainer* trainer : {&scheduled, &constant}) trainer->Step(Random(5));
  EXPECT_EQ(scheduled.weights(kVector), halved);
  EXPECT_EQ(scheduled.weights(kMatrix), constant.weights(kMatrix));
}

TEST(LocalOptimizerRulesTest, AParameterHasItsOwnMultiplierOfTheRate) {
  v1::JobDefinition job = MatrixAndVector();
  Trainer plain(job);
  job.mutable_parameters(kVector)->set_lr_multiplier(0);
  Trainer still(job);
  plain.Step(Random(2));
  still.Step(Random(2));
  EXPECT_EQ(still.weights(kVector), Random(1)[kVector]);
  EXPECT_EQ(still.weights(kMatrix), plain.weights(kMatrix));
}

bool AllFinite(const Trainer& trainer) {
  for (const int id : {kMatrix, kVector}) {
    for (const float weight : trainer.weights(id)) {
      if (!std::isfinite(weight)) return false;
    }
  }
  return true;
}

// Finite gradients never make an infinite momentum or a NaN weight ([T3]). `sum` makes infinity of
// 2e38: at once with Nesterov, at the second gradient without. AdamW's second moment makes it of
// 1e21.
TEST(LocalOptimizerRulesTest, NoFiniteGradientMakesAWeightThatIsNot) {
  for (const bool nesterov : {true, false}) {
    v1::JobDefinition job = MatrixAndVector();
    job.set_max_grad_norm(0);
    job.mutable_groups(kMatrix)->mutable_muon()->set_momentum_form(v1::MOMENTUM_FORM_SUM);
    job.mutable_groups(kMatrix)->mutable_muon()->set_nesterov(nesterov);
    Trainer trainer(job);
    Tensors gradients = Random(2);
    for (const auto& [id, value] :
         {std::pair(kMatrix, 2e38f), std::pair(kVector, 1e21f), std::pair(kVector, 2e38f)}) {
      Tensors spike = gradients;
      spike[id][1] = value;
      const std::vector<float> before = trainer.weights(id);
      const kaon::StepRecord record = trainer.Step(spike);
      EXPECT_FALSE(record.applied);
      EXPECT_THAT(record.reason, testing::HasSubstr("after clipping"));
      EXPECT_EQ(record.grad_norm, value);
      EXPECT_EQ(trainer.weights(id), before);
    }
    // The largest there may be, again and again.
    gradients[kMatrix][1] = 0x1p62f;
    gradients[kVector][1] = 0x1p62f;
    for (int step = 0; step < 50; ++step) ASSERT_TRUE(trainer.Step(gradients).applied);
    EXPECT_TRUE(AllFinite(trainer));
    gradients = Random(3);
    const float stuck = trainer.weights(kVector)[1];
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(trainer.Step(gradients).applied);
    EXPECT_TRUE(AllFinite(trainer));
    // Its moments are finite: it still moves.
    EXPECT_NE(trainer.weights(kVector)[1], stuck);
  }
}

// Clipping makes any finite gradient fit ([T3], [C5]); an exempt gradient must fit as it is.
TEST(LocalOptimizerRulesTest, AClippedSpikeIsSteppedWith) {
  v1::JobDefinition job = MatrixAndVector();
  job.set_max_grad_norm(1);
  Trainer trainer(job);
  Tensors gradients = Random(2);
  gradients[kVector][1] = 3e38f;
  EXPECT_TRUE(trainer.Step(gradients).applied);
  EXPECT_TRUE(AllFinite(trainer));
  gradients[kMatrix][1] = 3e38f;
  EXPECT_FALSE(trainer.Step(gradients).applied);
}

// [T7], edge 41: left alone, and its next update is its first.
TEST(LocalOptimizerRulesTest, AMissingGradientIsSkippedByDefault) {
  Trainer missing(MatrixAndVector());
  Trainer fresh(MatrixAndVector());
  const kaon::StepRecord record = missing.Step(Random(2), {kVector});
  EXPECT_EQ(record.norms[kVector].norm, 0);
  EXPECT_EQ(missing.weights(kVector), Random(1)[kVector]);
  missing.Step(Random(3));
  fresh.Step(Random(3));
  EXPECT_EQ(missing.weights(kVector), fresh.weights(kVector));
}

// [T7], edge 29: zero keeps Muon stepping from old momentum, at full size.
TEST(LocalOptimizerRulesTest, AMissingGradientMayStandForZeros) {
  v1::JobDefinition job = MatrixAndVector();
  job.mutable_groups(kMatrix)->set_missing_gradient(v1::MISSING_GRADIENT_ZERO);
  Trainer missing(job);
  Trainer zeros(job);
  missing.Step(Random(2));
  zeros.Step(Random(2));
  const std::vector<float> before = missing.weights(kMatrix);
  missing.Step(Random(3), {kMatrix});
  Tensors gradients = Random(3);
  gradients[kMatrix].assign(24, 0);
  zeros.Step(gradients);
  EXPECT_EQ(missing.weights(kMatrix), zeros.weights(kMatrix));
  EXPECT_GT(Distance(before, missing.weights(kMatrix)), 0.01);
}

// Edge 19: a group may be empty because all its parameters are frozen ([T8]).
TEST(LocalOptimizerRulesTest, AGroupWhoseParametersAreAllFrozenIsFine) {
  v1::JobDefinition job = MatrixAndVector();
  job.mutable_parameters(kVector)->set_frozen(true);
  job.set_max_grad_norm(1);
  job.set_grad_norm_skip_threshold(1);
  Trainer trainer(job);
  EXPECT_TRUE(trainer.Step(Random(2, 1e6)).applied);
  EXPECT_EQ(trainer.weights(kVector), Random(1)[kVector]);
}

// [T5]: norms are not in the record; the weights are those with them.
TEST(LocalOptimizerRulesTest, ReportingNormsChangesNoWeight) {
  v1::JobDefinition job = MatrixAndVector();
  job.set_max_grad_norm(0.5);
  Trainer reporting(job);
  job.set_report_norms(v1::REPORT_NORMS_OFF);
  Trainer quiet(job);
  EXPECT_GT(reporting.Step(Random(2)).norms[kMatrix].norm, 0);
  const kaon::StepRecord record = quiet.Step(Random(2));
  EXPECT_FALSE(record.norms[kMatrix].norm.has_value());
  EXPECT_LT(record.norms[kVector].clip_factor, 1);
  EXPECT_EQ(quiet.optimizer().weights(), reporting.optimizer().weights());
  Tensors poisoned = Random(3);
  poisoned[kMatrix][0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(quiet.Step(poisoned).applied);
}

// Edge 35: the masters add up changes that are smaller than a step of the workers' bf16 copy.
TEST(LocalOptimizerRulesTest, MastersAddUpWhatBf16CannotShow) {
  v1::JobDefinition job = MatrixAndVector();
  job.mutable_groups(kVector)->set_lr(1e-5);
  Trainer trainer(job);
  const std::vector<float> before = trainer.weights(kVector);
  Tensors gradients = Random(2);
  gradients[kVector].assign(5, 1);
  const auto rounded = [](float x) { return kernels::RoundTo(kernels::DType::kBFloat16, x); };
  trainer.Step(gradients);
  int moved_at_once = 0;
  for (int i = 0; i < 5; ++i)
    moved_at_once += rounded(trainer.weights(kVector)[i]) != rounded(before[i]);
  EXPECT_LT(moved_at_once, 5);
  for (int step = 0; step < 1500; ++step) trainer.Step(gradients);
  for (int i = 0; i < 5; ++i) {
    EXPECT_LT(rounded(trainer.weights(kVector)[i]), rounded(before[i])) << i;
    EXPECT_NEAR(trainer.weights(kVector)[i], before[i] - 0.01501, 2e-4) << i;
  }
}

}  // namespace
}  // namespace kaon::train
