#include "kernels/cpu_backend.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/digest.h"
#include "kernels/reference_gemm.h"
#include "kernels/vector_dispatch.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/thread_count_conformance.h"

namespace kaon::kernels {
namespace {

std::unique_ptr<Backend> MakeReferenceBackend() {
  return std::make_unique<CpuBackend>(std::make_unique<ReferenceGemm>());
}

// Those of this machine.
std::vector<InstructionSet> InstructionSets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet isa :
       {InstructionSet::kScalar, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (isa <= WidestInstructionSet()) sets.push_back(isa);
  }
  return sets;
}

// One for each instruction set, which is the process's until another is made.
std::vector<BackendMaker> ReferenceBackendMakers() {
  std::vector<BackendMaker> makers;
  for (const InstructionSet isa : InstructionSets()) {
    makers.emplace_back([isa] {
      ChosenInstructionSet() = isa;
      return MakeReferenceBackend();
    });
  }
  return makers;
}

INSTANTIATE_TEST_SUITE_P(CpuReference, BackendConformanceTest,
                         ::testing::ValuesIn(ReferenceBackendMakers()));

// Tiles of the backend's threads; a product of the reference takes any number of rows.
INSTANTIATE_TEST_SUITE_P(CpuReference, ThreadCountConformanceTest,
                         ::testing::Values(ThreadedBackendMaker([](int threads) {
                           ChosenInstructionSet() = WidestInstructionSet();
                           return std::make_unique<CpuBackend>(std::make_unique<ReferenceGemm>(),
                                                               threads);
                         })));

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
    const auto stepped = [&](int threads, InstructionSet isa) {
      ChosenInstructionSet() = isa;
      CpuBackend backend(std::make_unique<ReferenceGemm>(), threads);
      Parameter parameter(rule, shape, weight);
      std::vector<float> mean = grad;
      const MeanFacts facts =
          backend.FinishMean({.total_weight = 3, .loss_scale = 2}, absl::MakeSpan(mean));
      const UpdateResult result = parameter.Update(backend, mean, {0.1, 0.5, 1});
      return std::make_tuple(parameter.weight, result.weights_digest, result.slots_digest, mean,
                             facts.norm.sum_squares, facts.norm.absolute_max, facts.digest);
    };
    const auto expected = stepped(1, InstructionSet::kScalar);
    EXPECT_EQ(std::get<1>(expected), TensorDigest(0, kWeightSlot, std::get<0>(expected)));
    // All of both would take long where products are scalar.
    for (const auto& [threads, isa] :
         {std::make_pair(2, InstructionSet::kAvx2), std::make_pair(1, WidestInstructionSet()),
          std::make_pair(2, WidestInstructionSet()), std::make_pair(8, WidestInstructionSet())}) {
      if (isa > WidestInstructionSet()) continue;
      EXPECT_EQ(stepped(threads, isa), expected)
          << RuleName(rule) << ", " << threads << " threads, set " << static_cast<int>(isa);
    }
  }
}

}  // namespace
}  // namespace kaon::kernels
