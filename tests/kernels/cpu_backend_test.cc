#include "kernels/cpu_backend.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "kernels/digest.h"
#include "kernels/reference_gemm.h"
#include "tests/conformance/backend_conformance.h"

namespace kaon::kernels {
namespace {

std::unique_ptr<Backend> MakeReferenceBackend() {
  return std::make_unique<CpuBackend>(std::make_unique<ReferenceGemm>());
}

INSTANTIATE_TEST_SUITE_P(CpuReference, BackendConformanceTest,
                         ::testing::Values(&MakeReferenceBackend));

TEST(CpuBackendTest, NamesItsProducts) {
  EXPECT_EQ(MakeReferenceBackend()->name(), "cpu/reference");
}

// More than a piece of element-wise work, more than a tile of a product.
TEST(CpuBackendTest, GivesTheSameBitsWithAnyNumberOfThreads) {
  MuonConfig int8_muon;
  int8_muon.momentum_dtype = StateDType::kInt8;
  AdamWConfig bf16_adamw;
  bf16_adamw.momentum_dtype = StateDType::kBFloat16;
  const std::vector<RuleConfig> rules = {MuonConfig{}, int8_muon,   AdamWConfig{},
                                         bf16_adamw,   SgdConfig{}, LionConfig{}};
  const std::vector<uint64_t> shape = {251, 1031};
  const std::vector<float> grad = reference::GaussianVector(251 * 1031, 1);
  const std::vector<float> weight = reference::GaussianVector(251 * 1031, 2);
  for (const RuleConfig& rule : rules) {
    const auto stepped = [&](int threads) {
      CpuBackend backend(std::make_unique<ReferenceGemm>(), threads);
      Parameter parameter(rule, shape, weight);
      std::vector<float> mean = grad;
      const MeanFacts facts =
          backend.FinishMean({.total_weight = 3, .loss_scale = 2}, absl::MakeSpan(mean));
      const UpdateResult result = parameter.Update(backend, mean, {0.1, 0.5, 1});
      return std::make_tuple(parameter.weight, result.weights_digest, result.slots_digest, mean,
                             facts.norm.sum_squares, facts.norm.absolute_max, facts.digest);
    };
    const auto expected = stepped(1);
    EXPECT_EQ(std::get<1>(expected), TensorDigest(0, kWeightSlot, std::get<0>(expected)));
    EXPECT_EQ(stepped(2), expected) << RuleName(rule);
    EXPECT_EQ(stepped(8), expected) << RuleName(rule);
  }
}

}  // namespace
}  // namespace kaon::kernels
