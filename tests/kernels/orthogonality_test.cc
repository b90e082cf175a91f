#include "kernels/orthogonality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/cpu/muon_step.h"
#include "kernels/gemm/reference_gemm.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

using reference::GaussianVector;

constexpr double kLr = 0.5;

MuonConfig Unscaled() {
  MuonConfig config;
  config.scale = UpdateScale::kNone;
  return config;
}

std::optional<double> ErrorOf(const MuonConfig& config, std::vector<uint64_t> shape,
                              const std::vector<float>& orthogonal) {
  // w - lr O with numbers that fp32 holds exactly.
  std::vector<float> before(orthogonal.size(), 1);
  std::vector<float> after;
  for (float value : orthogonal) after.push_back(1 - static_cast<float>(kLr) * value);
  return OrthogonalityError(config, kLr, shape, before, after);
}

TEST(OrthogonalityTest, OfAnOrthogonalUpdateIsZero) {
  EXPECT_EQ(ErrorOf(Unscaled(), {2, 3}, {1, 0, 0, 0, 0, -1}), 0.0);
  EXPECT_EQ(ErrorOf(Unscaled(), {3, 2}, {0, 1, 0, 0, -1, 0}), 0.0);
}

// Computed by hand: O = diag(2, 1), O O^T - I = diag(3, 0), norm 3, over sqrt(2). And O O^T = [[2,
// 1], [1, 1]]: error [[1, 1], [1, 0]], norm sqrt(3).
TEST(OrthogonalityTest, IsTheNormOfTheGramMatrixLessTheIdentity) {
  EXPECT_DOUBLE_EQ(*ErrorOf(Unscaled(), {2, 2}, {2, 0, 0, 1}), 3 / std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(*ErrorOf(Unscaled(), {2, 2}, {1, 1, 0, 1}), std::sqrt(3.0 / 2));
  // A zero update is as far from orthogonal as a null direction is.
  EXPECT_DOUBLE_EQ(*ErrorOf(Unscaled(), {2, 2}, {0, 0, 0, 0}), 1.0);
}

// The worst of the blocks counts ([L2]). Each block has the scale of its own shape ([S1]).
TEST(OrthogonalityTest, TakesTheWorstOfTheBlocks) {
  MuonConfig config = Unscaled();
  config.layout.kind = MatrixLayoutKind::kBatched;
  EXPECT_DOUBLE_EQ(*ErrorOf(config, {2, 2, 2}, {1, 0, 0, 1, 2, 0, 0, 1}), 3 / std::sqrt(2.0));
  config.layout = {.kind = MatrixLayoutKind::kSplitCols, .sizes = {1, 1}};
  // Columns (1, 0) and (0, 2): errors 0 and 3.
  EXPECT_DOUBLE_EQ(*ErrorOf(config, {2, 2}, {1, 0, 0, 2}), 3.0);
  // Three blocks of (4, 4), (4, 4) and (1, 4), orthogonal times 2. 2 is the root of each block's
  // longer side; the root of the whole matrix's longer side is 3.
  config.layout = {.kind = MatrixLayoutKind::kSplitRows, .sizes = {4, 4, 1}};
  config.scale = UpdateScale::kMaxDim;
  std::vector<float> doubled(9 * 4);
  for (int row = 0; row < 9; ++row) doubled[row * 4 + row % 4] = 2;
  EXPECT_DOUBLE_EQ(*ErrorOf(config, {9, 4}, doubled), 0.0);
}

// The test recovers the update of ApplyMuon for any decay ([W1]) and any scale ([S1]).
TEST(OrthogonalityTest, TakesDecayLearningRateAndScaleOut) {
  const std::vector<uint64_t> shape = {24, 40};
  for (DecayMode mode :
       {DecayMode::kDecoupled, DecayMode::kIndependent, DecayMode::kL2, DecayMode::kPalm}) {
    MuonConfig config;
    config.newton_schulz.coefficients = NsCoefficients::kPolarExpress;
    config.newton_schulz.steps = 8;
    config.weight_decay = 0.25;
    config.decay_mode = mode;
    const std::vector<float> before = GaussianVector(24 * 40, 1);
    std::vector<float> after(before.size());
    std::vector<float> momentum(before.size());
    const Region slot(momentum);
    ReferenceGemm gemm;
    ThreadPool pool(1);
    const std::vector<float> grad = GaussianVector(24 * 40, 2);
    ApplyMuon(config, {0.125, 1, 1}, shape, {grad, before, after, {&slot, 1}}, gemm, pool);
    const std::optional<double> error = OrthogonalityError(config, 0.125, shape, before, after);
    ASSERT_TRUE(error.has_value());
    // polar_express converges to 1 ([N2]), so only the rounding of the weights remains.
    EXPECT_LT(*error, 1e-2) << static_cast<int>(mode);
  }
}

TEST(OrthogonalityTest, OfNoUpdateIsAbsent) {
  const std::vector<float> weight = {1, 2};
  EXPECT_FALSE(OrthogonalityError(Unscaled(), 0, {{1, 2}}, weight, weight).has_value());
  EXPECT_FALSE(OrthogonalityError(Unscaled(), 1, {{0, 2}}, {}, {}).has_value());
}

// A diagonal of 1 and 2 in turns, too large for its Gram matrix: error 3 on every second row.
TEST(OrthogonalityTest, IsEstimatedForLargeMatricesToSomePercent) {
  constexpr uint64_t kRows = 700;
  for (const auto& [rows, cols] : {std::pair(kRows, kRows + 100), std::pair(kRows + 100, kRows)}) {
    std::vector<float> orthogonal(rows * cols);
    for (uint64_t i = 0; i < kRows; ++i) orthogonal[i * cols + i] = i % 2 == 0 ? 1 : 2;
    EXPECT_NEAR(*ErrorOf(Unscaled(), {rows, cols}, orthogonal), 3 / std::sqrt(2.0), 1e-9);
    // Off the diagonal the signs of the probes matter.
    for (uint64_t i = 0; i < kRows; ++i) orthogonal[i * cols + (i + 1) % kRows] = 1;
    double squared = 0;
    for (uint64_t i = 0; i < kRows; ++i) {
      const double own = i % 2 == 0 ? 1 : 4;
      squared += own * own + 2 * (i % 2 == 0 ? 4 : 1);
    }
    const double expected = std::sqrt(squared / kRows);
    EXPECT_NEAR(*ErrorOf(Unscaled(), {rows, cols}, orthogonal), expected, 0.05 * expected);
  }
}

// Columns are processed in tiles whose memory grows with the shorter side. With the longer side of
// a single row or column, 64 bytes per element would be a GB.
TEST(OrthogonalityTest, IsEstimatedForLongRowsAndColumns) {
  constexpr uint64_t kLong = (uint64_t{1} << 22) + 1;
  std::vector<float> orthogonal(kLong);
  for (const uint64_t place : {uint64_t{0}, uint64_t{2047}, uint64_t{2048}, kLong - 1}) {
    orthogonal[place] = 1;
  }
  // Norm 2: O O^T = 4.
  EXPECT_DOUBLE_EQ(*ErrorOf(Unscaled(), {1, kLong}, orthogonal), 3);
  EXPECT_DOUBLE_EQ(*ErrorOf(Unscaled(), {kLong, 1}, orthogonal), 3);
}

struct Free {
  void operator()(float* memory) const { free(memory); }
};

// Weights that are all zero; no code may read most of them.
class Untouched {
 public:
  explicit Untouched(size_t count)
      : memory_(static_cast<float*>(calloc(count, sizeof(float)))), span_(memory_.get(), count) {}

  absl::Span<const float> span() const { return span_; }

 private:
  std::unique_ptr<float, Free> memory_;
  absl::Span<const float> span_;
};

TEST(OrthogonalityTest, LooksAtSoManyElementsOnly) {
  const Untouched weights(4 * kMostOrthogonalityElements);
  const absl::Span<const float> zeros = weights.span();
  const uint64_t most = kMostOrthogonalityElements;
  EXPECT_FALSE(OrthogonalityError(Unscaled(), 1, {{4, most}}, zeros, zeros).has_value());
  EXPECT_FALSE(OrthogonalityError(Unscaled(), 1, {{4 * most, 1}}, zeros, zeros).has_value());
  // The first matrix fits, the second does not.
  MuonConfig blocks = Unscaled();
  blocks.layout = {.kind = MatrixLayoutKind::kSplitRows, .sizes = {1, 4095}};
  EXPECT_EQ(OrthogonalityError(blocks, 1, {{4096, most / 1024}}, zeros, zeros), 1.0);
}

}  // namespace
}  // namespace kaon::kernels
