#include "kernels/cuda/muon/muon_batches.h"

#include <gtest/gtest.h>

#include <vector>

namespace kaon::kernels::cuda {
namespace {

MuonConfig ConfigOf(NsDType dtype, MatrixLayoutKind kind = MatrixLayoutKind::kMatrix) {
  MuonConfig config;
  config.newton_schulz.dtype = dtype;
  config.layout.kind = kind;
  return config;
}

// Rows, columns and number of matrices of each batch.
std::vector<std::vector<int64_t>> SizesOf(const std::vector<MuonBatch>& batches) {
  std::vector<std::vector<int64_t>> sizes;
  for (const MuonBatch& batch : batches) {
    sizes.push_back({batch.rows, batch.cols, static_cast<int64_t>(batch.matrices.size())});
  }
  return sizes;
}

TEST(MuonBatchesTest, EqualMatricesOfSeveralUpdatesAreOneBatch) {
  const RuleConfig matrix = ConfigOf(NsDType::kBFloat16);
  const RuleConfig same = ConfigOf(NsDType::kBFloat16);
  const RuleConfig other = ConfigOf(NsDType::kFloat16);
  const RuleConfig batched = ConfigOf(NsDType::kBFloat16, MatrixLayoutKind::kBatched);
  const std::vector<uint64_t> wide = {4, 6};
  const std::vector<uint64_t> tall = {6, 4};
  const std::vector<uint64_t> three = {3, 4, 6};
  const std::vector<MuonBatch> batches = MuonBatches({{&matrix, wide},
                                                      {&same, tall},
                                                      {&same, wide},
                                                      {&other, wide},
                                                      {nullptr, wide},
                                                      {&batched, three}},
                                                     1 << 20);
  EXPECT_EQ(SizesOf(batches), (std::vector<std::vector<int64_t>>{{4, 6, 5}, {6, 4, 1}, {4, 6, 1}}));
  EXPECT_EQ(batches[0].matrices[1].update, 2u);
  EXPECT_EQ(batches[0].matrices[4].update, 5u);
  EXPECT_EQ(batches[0].matrices[4].place, 2u);
  EXPECT_EQ(batches[0].matrices[4].block.runs[0].offset, 48);
  EXPECT_EQ(batches[1].wide().r, 4);
  EXPECT_EQ(batches[1].wide().c, 6);
}

TEST(MuonBatchesTest, BatchesOfOneKindAreAboutEqual) {
  const RuleConfig batched = ConfigOf(NsDType::kBFloat16, MatrixLayoutKind::kBatched);
  const std::vector<uint64_t> shape = {10, 16, 16};
  const uint64_t one =
      NewtonSchulzPlan::MemoryBytes(std::get<MuonConfig>(batched).newton_schulz, {16, 16, 1});
  EXPECT_EQ(SizesOf(MuonBatches({{&batched, shape}}, 4 * one)),
            (std::vector<std::vector<int64_t>>{{16, 16, 4}, {16, 16, 4}, {16, 16, 2}}));
  // A matrix that is too large runs alone.
  EXPECT_EQ(MuonBatches({{&batched, shape}}, 1).size(), 10u);
}

TEST(MuonBatchesTest, KeysHoldEverythingThatAnIterationDependsOn) {
  const NewtonSchulzConfig config;
  const auto differs = [&](auto change) {
    NewtonSchulzConfig other = config;
    change(other);
    return KeyOf(other) != KeyOf(config);
  };
  EXPECT_FALSE(differs([](NewtonSchulzConfig&) {}));
  EXPECT_TRUE(differs([](NewtonSchulzConfig& c) { c.coefficients = NsCoefficients::kYou; }));
  EXPECT_TRUE(differs([](NewtonSchulzConfig& c) { c.custom = {{1, 2, 3}}; }));
  EXPECT_TRUE(differs([](NewtonSchulzConfig& c) { c.custom_repeat = NsRepeat::kCycle; }));
  EXPECT_TRUE(differs([](NewtonSchulzConfig& c) { c.steps = 6; }));
  EXPECT_TRUE(differs([](NewtonSchulzConfig& c) { c.dtype = NsDType::kFloat16; }));
  EXPECT_TRUE(differs([](NewtonSchulzConfig& c) { c.norm_mode = NormMode::kAddEps; }));
  EXPECT_TRUE(differs([](NewtonSchulzConfig& c) { c.norm_eps = 1e-6; }));
  EXPECT_TRUE(differs([](NewtonSchulzConfig& c) { c.form = NsForm::kGram; }));
  EXPECT_TRUE(differs([](NewtonSchulzConfig& c) { c.gram_restarts = {2}; }));
}

}  // namespace
}  // namespace kaon::kernels::cuda
