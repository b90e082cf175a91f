#include "kernels/cpu/muon_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/orthogonalize/newton_schulz.h"
#include "kernels/reduce/digest.h"
#include "tests/kernels/cpu/stepped_muon.h"
#include "tests/kernels/reference/float64_muon.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

using reference::GaussianVector;

double Distance(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(sum);
}

// The default configuration's step ([M1]-[M5]) operation by operation: replays of old steps, and
// everyone's digests, depend on each of these roundings.
TEST(MuonStepTest, DefaultStepIsTheseOperations) {
  constexpr int kRows = 6;
  constexpr int kCols = 10;
  MuonConfig config;
  config.weight_decay = 0.1;
  SteppedMuon actual(config, {kRows, kCols}, GaussianVector(kRows * kCols, 1));
  std::vector<float> weight = actual.weight;
  std::vector<float> momentum(weight.size());
  ReferenceGemm gemm;
  ThreadPool pool(1);
  for (int t = 1; t <= 4; ++t) {
    const std::vector<float> grad = GaussianVector(weight.size(), 10 + t);
    EXPECT_EQ(actual.Step(grad, {0.02, 0.3, t}).newton_schulz_calls, 1);

    std::vector<float> update(weight.size());
    for (size_t i = 0; i < weight.size(); ++i) {
      const float share = static_cast<float>(1.0 - 0.95) * (0.3f * grad[i]);
      momentum[i] = std::fma(0.95f, momentum[i], share);
      update[i] = std::fma(0.95f, momentum[i], share);
    }
    NewtonSchulz(config.newton_schulz, {{kRows, kCols}, absl::MakeSpan(update), absl::nullopt},
                 gemm, pool, [&](int64_t first, absl::Span<const float> values) {
                   std::copy(values.begin(), values.end(), update.begin() + first);
                 });
    const float decay = static_cast<float>(0.02 * 0.1);
    const float step = static_cast<float>(0.02 * (0.2 * std::sqrt(10.0)));
    for (size_t i = 0; i < weight.size(); ++i) {
      weight[i] = std::fma(-step, update[i], std::fma(-decay, weight[i], weight[i]));
    }
    ASSERT_TRUE(EqualBits(actual.Momentum(), momentum)) << t;
    ASSERT_TRUE(EqualBits(actual.weight, weight)) << t;
  }
}

// Gradient, momentum, step and decay follow the reference in all combinations ([M1], [M2], [M5],
// [W1]).
TEST(MuonStepTest, EveryFormAndDecayFollowsTheReference) {
  const std::pair<DecayMode, const char*> modes[] = {{DecayMode::kDecoupled, "decoupled"},
                                                     {DecayMode::kIndependent, "independent"},
                                                     {DecayMode::kL2, "l2"},
                                                     {DecayMode::kPalm, "palm"}};
  for (const auto& [mode, name] : modes) {
    for (const int bits : {0, 1, 2, 3}) {
      MuonConfig config;
      config.momentum = 0.9;
      config.nesterov = (bits & 1) != 0;
      config.momentum_form = (bits & 2) != 0 ? MomentumForm::kSum : MomentumForm::kEma;
      config.decay_mode = mode;
      config.weight_decay = 0.2;
      config.scale = UpdateScale::kMaxDim;
      SteppedMuon actual(config, {24, 40}, GaussianVector(960, 9));
      std::vector<double> expected = reference::Widened(actual.weight);
      reference::LayoutMuon muon;
      muon.lr = 0.05;
      muon.momentum = 0.9;
      muon.nesterov = config.nesterov;
      muon.sums = (bits & 2) != 0;
      muon.weight_decay = 0.2;
      muon.decay = name;
      muon.scale = "max_dim";
      muon.layout.shape = {24, 40};
      for (int t = 1; t <= 10; ++t) {
        const std::vector<float> grad = GaussianVector(960, 200 + t);
        actual.Step(grad, {0.05, 1.0, t});
        muon.Step(reference::Widened(grad), expected);
      }
      EXPECT_LE(reference::RelativeError(actual.weight, expected), 5e-6) << name << " " << bits;
      EXPECT_LE(reference::RelativeError(actual.Momentum(), muon.buffer), 5e-6) << name;
    }
  }
}

// [M2]: with the scale-invariant norm both forms walk the same way; their buffers differ by 1 - mu.
TEST(MuonStepTest, EmaAndSumTakeTheSameTrajectory) {
  for (const bool nesterov : {true, false}) {
    MuonConfig config;
    config.nesterov = nesterov;
    config.weight_decay = 0.1;
    SteppedMuon ema(config, {12, 20}, GaussianVector(240, 1));
    config.momentum_form = MomentumForm::kSum;
    SteppedMuon sum(config, {12, 20}, ema.weight);
    const std::vector<float> start = ema.weight;
    for (int t = 1; t <= 20; ++t) {
      const std::vector<float> grad = GaussianVector(240, 30 + t);
      ema.Step(grad, {0.1, 1.0, t});
      sum.Step(grad, {0.1, 1.0, t});
    }
    ASSERT_GT(Distance(ema.weight, start), 1.0);
    EXPECT_LE(reference::RelativeError(sum.weight, reference::Widened(ema.weight)), 1e-5);
    std::vector<double> scaled = reference::Widened(sum.Momentum());
    for (double& x : scaled) x *= 1 - 0.95;
    EXPECT_LE(reference::RelativeError(ema.Momentum(), scaled), 1e-6);
  }
}

// The state is the momentum and nothing else, whatever happens to the direction ([M3]); this is
// edge 28.
TEST(MuonStepTest, MomentumIsNeitherAliasedNorNormalised) {
  for (const StateDType dtype : {StateDType::kFloat32, StateDType::kBFloat16, StateDType::kInt8}) {
    for (const bool nesterov : {false, true}) {
      MuonConfig config;
      config.momentum_dtype = dtype;
      config.nesterov = nesterov;
      config.newton_schulz.dtype = NsDType::kBFloat16;
      // More than one chunk, and a group cut short at the end.
      SteppedMuon stepped(config, {67, 131}, GaussianVector(67 * 131, 1));
      std::vector<float> momentum(67 * 131);
      for (int t = 1; t <= 3; ++t) {
        const std::vector<float> grad = GaussianVector(67 * 131, 40 + t);
        stepped.Step(grad, {0.1, 1.0, t});
        const float share = static_cast<float>(1.0 - 0.95);
        for (size_t i = 0; i < grad.size(); ++i) {
          momentum[i] = std::fma(0.95f, momentum[i], share * grad[i]);
        }
        std::vector<std::byte> expected(stepped.state.size());
        EncodeState(dtype, momentum, 0, absl::MakeSpan(expected));
        ASSERT_EQ(stepped.state, expected) << t;
        DecodeState(dtype, expected, 0, absl::MakeSpan(momentum));
      }
    }
  }
}

// The direction is that of the momentum before it is rounded ([Q1]). A first step does not depend
// on the momentum's storage, and later steps hardly do.
TEST(MuonStepTest, DirectionComesFromTheUnquantisedMomentum) {
  const std::pair<StateDType, double> cases[] = {{StateDType::kBFloat16, 1e-2},
                                                 {StateDType::kInt8, 3e-2}};
  for (const auto& [dtype, tolerance] : cases) {
    for (const bool nesterov : {false, true}) {
      MuonConfig config;
      config.nesterov = nesterov;
      SteppedMuon exact(config, {67, 131}, std::vector<float>(67 * 131));
      config.momentum_dtype = dtype;
      SteppedMuon compact(config, {67, 131}, exact.weight);
      for (int t = 1; t <= 10; ++t) {
        const std::vector<float> grad = GaussianVector(67 * 131, 50 + t);
        exact.Step(grad, {0.1, 1.0, t});
        compact.Step(grad, {0.1, 1.0, t});
        EXPECT_TRUE(t > 1 || EqualBits(compact.weight, exact.weight));
      }
      EXPECT_FALSE(EqualBits(compact.weight, exact.weight));
      EXPECT_LE(reference::RelativeError(compact.weight, reference::Widened(exact.weight)),
                tolerance);
    }
  }
}

// 1.3: zeros stand in for a missing gradient ([T7]), and Muon still steps.
TEST(MuonStepTest, LiveMomentumStepsAtFullSizeWithoutAGradient) {
  SteppedMuon stepped(MuonConfig{}, {12, 20}, std::vector<float>(240));
  stepped.Step(GaussianVector(240, 1), {1.0, 1.0, 1});
  const std::vector<float> first = stepped.weight;
  stepped.Step(std::vector<float>(240), {1.0, 1.0, 2});
  const double full = Distance(first, std::vector<float>(240));
  EXPECT_NEAR(Distance(stepped.weight, first), full, 1e-4 * full);
}

// Edge 45: a zero update without decay leaves the weights' bits alone. With decay it only decays by
// the base rate, without shape or scale ([M5]).
TEST(MuonStepTest, ZeroUpdateDecaysAndDoesNothingElse) {
  std::vector<float> weight = GaussianVector(24, 1);
  weight[0] = -0.0f;
  weight[1] = 1e-41f;
  const std::vector<float> zeros(24);
  const std::pair<DecayMode, double> shares[] = {{DecayMode::kDecoupled, 0.5 * 0.25},
                                                 {DecayMode::kIndependent, 0.25},
                                                 {DecayMode::kPalm, 0.25 * 0.5 * 0.5}};
  for (const auto& [mode, share] : shares) {
    for (const UpdateScale scale : {UpdateScale::kMatchRmsAdamW, UpdateScale::kMaxDim}) {
      MuonConfig config;
      config.decay_mode = mode;
      config.scale = scale;
      config.scale_extra = 3;
      SteppedMuon stepped(config, {4, 6}, weight);
      stepped.Step(zeros, {0.5, 1.0, 1});
      EXPECT_TRUE(EqualBits(stepped.weight, weight));
      stepped.config.weight_decay = 0.25;
      stepped.Step(zeros, {0.5, 1.0, 2});
      for (size_t i = 0; i < weight.size(); ++i) {
        ASSERT_EQ(stepped.weight[i], std::fma(static_cast<float>(-share), weight[i], weight[i]));
      }
    }
  }
  // `l2` without decay has no gradient either.
  MuonConfig l2;
  l2.decay_mode = DecayMode::kL2;
  SteppedMuon stepped(l2, {4, 6}, weight);
  stepped.Step(zeros, {0.5, 1.0, 1});
  EXPECT_TRUE(EqualBits(stepped.weight, weight));
}

// Steps 6 times; step t is clipped by factors[t % 2].
std::vector<float> WeightClippedBy(const std::vector<double>& factors) {
  SteppedMuon stepped(MuonConfig{}, {12, 20}, std::vector<float>(240));
  for (int t = 1; t <= 6; ++t) {
    stepped.Step(GaussianVector(240, 60 + t), {1.0, factors[t % 2], t});
  }
  return stepped.weight;
}

// [C7], edge 46: clipping is no pure no-op for a scale-invariant rule.
TEST(MuonStepTest, OnlyAVaryingClipFactorChangesTheResult) {
  const std::vector<double> unclipped = reference::Widened(WeightClippedBy({1.0, 1.0}));
  EXPECT_LE(reference::RelativeError(WeightClippedBy({0.01, 0.01}), unclipped), 1e-5);
  EXPECT_GE(reference::RelativeError(WeightClippedBy({1.0, 0.01}), unclipped), 0.1);
}

// [T1], edge 14: micro-batches make one gradient, and the momentum advances once. Multiples of 1/8
// make every sum exact, so that bits can be compared.
TEST(MuonStepTest, MicroBatchesAreOneStep) {
  CpuBackend backend(std::make_unique<ReferenceGemm>());
  constexpr int kBatches = 4;
  // The first fold overwrites whatever the memory held.
  std::vector<float> folded(240, std::nanf(""));
  const std::unique_ptr<Accumulation> sum = backend.Accumulate(folded);
  std::vector<float> mean(240);
  for (int k = 0; k < kBatches; ++k) {
    std::vector<float> grad = GaussianVector(240, 70 + k);
    for (float& x : grad) x = std::nearbyint(8 * x) / 8;
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += grad[i] / kBatches;
    const absl::Span<const std::byte> bytes = ConstRegion(grad).host_bytes();
    sum->Fold({DType::kFloat32, {&bytes, 1}, 0, static_cast<uint32_t>(k), 1.0f, k == 0});
    EXPECT_FALSE(sum->FactsOf(static_cast<uint32_t>(k)).non_finite);
  }
  sum->FinishMean({.total_weight = kBatches});
  SteppedMuon once(MuonConfig{}, {12, 20}, GaussianVector(240, 1));
  SteppedMuon accumulated = once;
  once.Step(mean, {0.1, 1.0, 1});
  accumulated.Step(folded, {0.1, 1.0, 1});
  EXPECT_TRUE(EqualBits(accumulated.weight, once.weight));
  const float share = static_cast<float>(1.0 - 0.95);
  for (size_t i = 0; i < mean.size(); ++i) {
    ASSERT_EQ(accumulated.Momentum()[i], share * mean[i]) << i;
  }
}

// Products too large, as those of a broken machine or library: Newton-Schulz runs away.
class InexactGemm final : public Gemm {
 public:
  absl::string_view name() const override { return "inexact"; }
  void Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) override {
    MatrixProduct larger = product;
    larger.alpha *= 10;
    gemm_.Multiply(larger, a, b, c);
  }
  void MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                        float* c) override {
    MultiplyWidened(*this, product, a, b, c);
  }

 private:
  ReferenceGemm gemm_;
};

// An update that diverges keeps the weights ([T10]). The cases are in place and out of place, one
// matrix and several, the whole update and the part before its decision.
TEST(MuonStepTest, KeepsTheWeightsWhereNewtonSchulzRunsAway) {
  InexactGemm gemm;
  ThreadPool pool(1);
  for (const UpdatePart part : {UpdatePart::kAll, UpdatePart::kWeights}) {
    for (const MatrixLayoutKind layout : {MatrixLayoutKind::kMatrix, MatrixLayoutKind::kBatched}) {
      for (const NsDType dtype : {NsDType::kFloat32, NsDType::kBFloat16}) {
        MuonConfig config;
        config.layout.kind = layout;
        config.newton_schulz.dtype = dtype;
        // After two steps it is finite, and much too large.
        config.newton_schulz.steps = 2;
        const std::vector<uint64_t> shape = layout == MatrixLayoutKind::kMatrix
                                                ? std::vector<uint64_t>{6, 10}
                                                : std::vector<uint64_t>{3, 4, 5};
        const std::vector<float> start = GaussianVector(60, 30);
        const std::vector<float> grad = GaussianVector(60, 31);
        for (const bool in_place : {false, true}) {
          std::vector<float> weight = start;
          std::vector<float> beside(60);
          std::vector<std::byte> momentum(60 * sizeof(float));
          const Region slot = absl::MakeSpan(momentum);
          const UpdateBuffers buffers = {
              grad, weight, in_place ? weight : beside, {&slot, 1}, part};
          const UpdateResult result = ApplyMuon(config, {1e-2, 1, 1}, shape, buffers, gemm, pool);
          EXPECT_EQ(result.fault, UpdateFault::kTooLarge);
          EXPECT_TRUE(EqualBits(in_place ? weight : beside, start));
          EXPECT_EQ(result.weights_digest, TensorDigest(0, kWeightSlot, start));
        }
      }
    }
  }
}

}  // namespace
}  // namespace kaon::kernels
