// Muon's step by layout ([L1]-[L6]) and scale ([S1]). The result is as if every matrix were a
// parameter of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/cpu/stepped_muon.h"
#include "tests/kernels/reference/float64_muon.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

using reference::GaussianVector;

struct Case {
  std::string name;
  MatrixLayout layout;
  std::vector<uint64_t> shape;
};

MatrixLayout Sized(MatrixLayoutKind kind, std::vector<uint64_t> sizes) {
  MatrixLayout layout;
  layout.kind = kind;
  layout.sizes = std::move(sizes);
  return layout;
}

MatrixLayout Headed(uint64_t num_heads) {
  MatrixLayout layout;
  layout.kind = MatrixLayoutKind::kHeads;
  layout.num_heads = num_heads;
  return layout;
}

// Edges 29, 30 and 31 among them, with grouped queries: 6 heads of queries over 2 of keys.
std::vector<Case> Cases() {
  using Kind = MatrixLayoutKind;
  return {
      {"matrix", {}, {6, 11}},
      {"batched", Sized(Kind::kBatched, {}), {3, 7, 5}},
      {"batched", Sized(Kind::kBatched, {}), {2, 3, 4, 9}},
      {"batched", Sized(Kind::kBatched, {4, 4}), {3, 8, 5}},
      {"conv_flatten", Sized(Kind::kConvFlatten, {}), {12, 1, 3, 3}},
      {"conv_flatten", Sized(Kind::kConvFlatten, {}), {4, 5, 3}},
      {"split_rows", Sized(Kind::kSplitRows, {24, 8, 8}), {40, 16}},
      {"split_rows", Sized(Kind::kSplitRows, {5}), {5, 3}},
      {"qkv_interleaved", Sized(Kind::kQkvInterleaved, {12, 4, 4}), {40, 16}},
      {"qkv_interleaved", Sized(Kind::kQkvInterleaved, {6, 6, 2, 2}), {48, 7}},
      {"heads", Headed(4), {20, 6}},
      {"split_cols", Sized(Kind::kSplitCols, {3, 8, 1}), {7, 12}},
  };
}

reference::Layout ReferenceOf(const Case& c) {
  reference::Layout layout;
  layout.kind = c.name;
  layout.shape.assign(c.shape.begin(), c.shape.end());
  layout.sizes.assign(c.layout.sizes.begin(), c.layout.sizes.end());
  layout.num_heads = static_cast<int64_t>(c.layout.num_heads);
  return layout;
}

size_t CountOf(const Case& c) {
  size_t n = 1;
  for (const uint64_t extent : c.shape) n *= extent;
  return n;
}

// The matrices of `elements`, each row-major.
std::vector<std::vector<float>> Separate(const Case& c, const std::vector<float>& elements) {
  std::vector<std::vector<float>> matrices;
  for (const reference::Matrix& block :
       reference::Cut(ReferenceOf(c), reference::Widened(elements))) {
    std::vector<float>& matrix = matrices.emplace_back(block.size());
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(block.data()[i]);
  }
  return matrices;
}

void ExpectStepsLikeSeparateMatrices(const Case& c, MuonConfig config) {
  const size_t n = CountOf(c);
  const std::vector<float> weight = GaussianVector(n, 1);
  MuonConfig fused = config;
  fused.layout = c.layout;
  fused.layout.transposed = config.layout.transposed;
  SteppedMuon whole(fused, c.shape, weight);
  std::vector<SteppedMuon> separate;
  for (const reference::Matrix& block :
       reference::Cut(ReferenceOf(c), reference::Widened(weight))) {
    separate.emplace_back(config,
                          std::vector<uint64_t>{static_cast<uint64_t>(block.rows()),
                                                static_cast<uint64_t>(block.cols())},
                          std::vector<float>(block.data(), block.data() + block.size()));
  }
  for (int t = 1; t <= 3; ++t) {
    const std::vector<float> grad = GaussianVector(n, 10 + t);
    const UpdateScalars scalars = {0.05, 0.7, t};
    // However many blocks, it is one update that goes through Newton-Schulz.
    EXPECT_EQ(whole.Step(grad, scalars).newton_schulz_calls, 1);
    const std::vector<std::vector<float>> grads = Separate(c, grad);
    for (size_t b = 0; b < separate.size(); ++b) separate[b].Step(grads[b], scalars);
  }
  const std::vector<std::vector<float>> weights = Separate(c, whole.weight);
  const std::vector<std::vector<float>> momenta = Separate(c, whole.Momentum());
  for (size_t b = 0; b < separate.size(); ++b) {
    EXPECT_TRUE(EqualBits(weights[b], separate[b].weight)) << "weight of block " << b;
    EXPECT_TRUE(EqualBits(momenta[b], separate[b].Momentum())) << "momentum of block " << b;
  }
}

// [M4], edges 29, 30 and 31: bit for bit.
TEST(MuonStepLayoutsTest, EveryLayoutEqualsItsSeparateParameters) {
  std::vector<MuonConfig> configs(5);
  configs[0].weight_decay = 0.1;
  configs[1].nesterov = false;
  configs[1].scale = UpdateScale::kOriginal;
  configs[1].layout.transposed = true;
  configs[2].newton_schulz.dtype = NsDType::kBFloat16;
  configs[2].momentum_dtype = StateDType::kBFloat16;
  configs[3].decay_mode = DecayMode::kL2;
  configs[3].weight_decay = 0.3;
  configs[3].momentum_form = MomentumForm::kSum;
  configs[3].scale = UpdateScale::kUnitRmsNorm;
  // The Gram form accepts batches, too.
  configs[4].newton_schulz.form = NsForm::kGram;
  configs[4].newton_schulz.gram_restarts = {2};
  for (const Case& c : Cases()) {
    for (size_t i = 0; i < configs.size(); ++i) {
      SCOPED_TRACE(c.name + ", configuration " + std::to_string(i));
      ExpectStepsLikeSeparateMatrices(c, configs[i]);
    }
  }
}

// int8 momentum is kept in groups of 32 of the parameter's memory ([M4], [Q1]). The bits are equal
// if blocks begin and end with a group.
TEST(MuonStepLayoutsTest, Int8MomentumOfWholeGroupsEqualsSeparateParameters) {
  using Kind = MatrixLayoutKind;
  MuonConfig config;
  config.momentum_dtype = StateDType::kInt8;
  for (const Case& c : {Case{"batched", Sized(Kind::kBatched, {}), {3, 8, 12}},
                        Case{"split_rows", Sized(Kind::kSplitRows, {16, 8}), {24, 16}},
                        Case{"qkv_interleaved", Sized(Kind::kQkvInterleaved, {2, 1, 1}), {8, 32}},
                        Case{"split_cols", Sized(Kind::kSplitCols, {32, 64}), {5, 96}}}) {
    SCOPED_TRACE(c.name);
    ExpectStepsLikeSeparateMatrices(c, config);
  }
}

// [M4], [Q1]: and within the codec's rounding elsewhere. Two blocks of 35: the second begins in the
// group in which the first ends, and shares its scale.
TEST(MuonStepLayoutsTest, Int8GroupsRunAcrossBlocks) {
  MuonConfig config;
  config.momentum_dtype = StateDType::kInt8;
  config.momentum_form = MomentumForm::kSum;
  SteppedMuon separate(config, {7, 5}, std::vector<float>(35));
  config.layout.kind = MatrixLayoutKind::kBatched;
  SteppedMuon whole(config, {2, 7, 5}, std::vector<float>(70));
  std::vector<float> grad = GaussianVector(70, 7);
  grad[34] = 1000;
  whole.Step(grad, {0.05, 1.0, 1});
  separate.Step(std::vector<float>(grad.begin() + 35, grad.end()), {0.05, 1.0, 1});
  const std::vector<float> momenta = whole.Momentum();
  const std::vector<float> expected = separate.Momentum();
  for (size_t i = 0; i < 35; ++i) {
    const bool shares_a_group = 35 + i < 64;
    EXPECT_NEAR(momenta[35 + i], expected[i], shares_a_group ? 1000 / 127.0 : 0.05) << i;
    if (shares_a_group) {
      EXPECT_EQ(momenta[35 + i], 0) << i;
    }
  }
}

// [S1] per block, [L1]-[L6]: against the float64 reference for every layout and scale.
TEST(MuonStepLayoutsTest, EveryLayoutAndScaleFollowsTheReference) {
  const std::pair<UpdateScale, const char*> scales[] = {
      {UpdateScale::kNone, "none"},
      {UpdateScale::kOriginal, "original"},
      {UpdateScale::kMaxDim, "max_dim"},
      {UpdateScale::kMatchRmsAdamW, "match_rms_adamw"},
      {UpdateScale::kUnitRmsNorm, "unit_rms_norm"},
  };
  for (const Case& c : Cases()) {
    for (const auto& [scale, name] : scales) {
      for (const bool transposed : {false, true}) {
        MuonConfig config;
        config.layout = c.layout;
        config.layout.transposed = transposed;
        config.scale = scale;
        config.scale_extra = 0.7;
        SteppedMuon actual(config, c.shape, GaussianVector(CountOf(c), 2));
        reference::LayoutMuon expected;
        expected.lr = 0.05;
        expected.scale = name;
        expected.scale_extra = 0.7;
        expected.transposed = transposed;
        expected.layout = ReferenceOf(c);
        std::vector<double> weight = reference::Widened(actual.weight);
        for (int t = 1; t <= 3; ++t) {
          const std::vector<float> grad = GaussianVector(CountOf(c), 20 + t);
          actual.Step(grad, {0.05, 1.0, t});
          expected.Step(reference::Widened(grad), weight);
        }
        EXPECT_LE(reference::RelativeError(actual.weight, weight), 2e-6)
            << c.name << " " << name << (transposed ? " transposed" : "");
        EXPECT_LE(reference::RelativeError(actual.Momentum(), expected.buffer), 1e-6);
      }
    }
  }
}

// Edge 30: (C, 1, 3, 3) is a (C, 9) matrix to the scale too, not (3, 3).
TEST(MuonStepLayoutsTest, ConvolutionTakesTheScaleOfItsFlattenedShape) {
  MuonConfig config;
  config.scale = UpdateScale::kOriginal;
  SteppedMuon matrix(config, {36, 9}, std::vector<float>(36 * 9));
  config.layout.kind = MatrixLayoutKind::kConvFlatten;
  SteppedMuon conv(config, {36, 1, 3, 3}, std::vector<float>(36 * 9));
  config.scale = UpdateScale::kNone;
  SteppedMuon unscaled(config, {36, 1, 3, 3}, std::vector<float>(36 * 9));
  const std::vector<float> grad = GaussianVector(36 * 9, 3);
  for (SteppedMuon* stepped : {&matrix, &conv, &unscaled}) stepped->Step(grad, {1.0, 1.0, 1});
  EXPECT_TRUE(EqualBits(conv.weight, matrix.weight));
  for (size_t i = 0; i < grad.size(); ++i) {
    // sqrt(36 / 9).
    ASSERT_EQ(conv.weight[i], 2.0f * unscaled.weight[i]) << i;
  }
}

// Edge 29: an expert without tokens has a zero gradient. Its momentum decays on, and the others'
// steps do not depend on it.
TEST(MuonStepLayoutsTest, ExpertWithoutTokensKeepsStepping) {
  MuonConfig config;
  config.layout.kind = MatrixLayoutKind::kBatched;
  SteppedMuon experts(config, {2, 4, 6}, std::vector<float>(48));
  const std::vector<float> grad = GaussianVector(48, 4);
  experts.Step(grad, {1.0, 1.0, 1});
  SteppedMuon full = experts;
  std::vector<float> starved = grad;
  std::fill(starved.begin(), starved.begin() + 24, 0.0f);
  const std::vector<float> before = experts.weight;
  experts.Step(starved, {1.0, 1.0, 2});
  full.Step(grad, {1.0, 1.0, 2});
  double moved = 0;
  for (size_t i = 0; i < 24; ++i) moved += std::abs(experts.weight[i] - before[i]);
  EXPECT_GT(moved, 1.0);
  for (size_t i = 24; i < 48; ++i) ASSERT_EQ(experts.weight[i], full.weight[i]) << i;
}

// The old weights stay whole while the new ones are written elsewhere ([T6]), block by block.
TEST(MuonStepLayoutsTest, NewWeightsMayGoElsewhere) {
  for (const Case& c : Cases()) {
    MuonConfig config;
    config.layout = c.layout;
    config.decay_mode = DecayMode::kL2;
    config.weight_decay = 0.1;
    SteppedMuon in_place(config, c.shape, GaussianVector(CountOf(c), 5));
    SteppedMuon apart = in_place;
    const std::vector<float> grad = GaussianVector(CountOf(c), 6);
    const std::vector<float> old_weight = apart.weight;
    std::vector<float> new_weight(old_weight.size(), std::nanf(""));
    const Region slot = absl::MakeSpan(apart.state);
    ReferenceGemm gemm;
    ThreadPool pool(1);
    in_place.Step(grad, {0.1, 1.0, 1});
    ApplyMuon(config, {0.1, 1.0, 1}, c.shape, {grad, apart.weight, new_weight, {&slot, 1}}, gemm,
              pool);
    EXPECT_TRUE(EqualBits(new_weight, in_place.weight)) << c.name;
    EXPECT_TRUE(EqualBits(apart.weight, old_weight)) << c.name;
  }
}

}  // namespace
}  // namespace kaon::kernels
