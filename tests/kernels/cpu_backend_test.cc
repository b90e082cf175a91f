#include "kernels/cpu_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "kernels/digest.h"
#include "kernels/reference_gemm.h"
#include "kernels/streaming_store.h"
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

struct SteppedWeights {
  std::vector<float> weight;
  UpdateResult result;
};

// New weights `offset` elements behind the beginning of their memory, or where the old ones are.
SteppedWeights SteppedBeside(const RuleConfig& rule, const std::vector<float>& grad,
                             std::vector<float> weight, absl::optional<int> offset) {
  const std::vector<uint64_t> shape = {weight.size()};
  CpuBackend backend(std::make_unique<ReferenceGemm>(), 2);
  std::vector<std::vector<std::byte>> slots;
  std::vector<absl::Span<std::byte>> spans;
  for (const StateSlot& slot : StateSlots(rule, shape)) slots.emplace_back(slot.num_bytes);
  for (std::vector<std::byte>& slot : slots) spans.push_back(absl::MakeSpan(slot));
  std::vector<float> memory(weight.size() + 3, std::nanf(""));
  const absl::Span<float> to =
      offset ? absl::MakeSpan(memory).subspan(*offset, weight.size()) : absl::MakeSpan(weight);
  const UpdateResult result = backend.ApplyUpdate(rule, {.lr = 0.1, .clip_factor = 1, .t = 1},
                                                  shape, {grad, weight, to, spans});
  return {std::vector<float>(to.begin(), to.end()), result};
}

// Those of long parameters go past the caches, by whole vectors.
TEST(CpuBackendTest, NewWeightsBesideTheOldOnesAreThoseInPlace) {
  ChosenInstructionSet() = WidestInstructionSet();
  AdamWConfig bf16_adamw;
  bf16_adamw.momentum_dtype = StateDType::kBFloat16;
  for (const size_t n : {size_t{1000}, kLeastStreamedBytes / sizeof(float) + 4099}) {
    const std::vector<float> grad = reference::GaussianVector(n, 1);
    const std::vector<float> weight = reference::GaussianVector(n, 2);
    for (const RuleConfig& rule : std::vector<RuleConfig>{AdamWConfig{}, bf16_adamw, SgdConfig{}}) {
      const SteppedWeights expected = SteppedBeside(rule, grad, weight, absl::nullopt);
      for (const int offset : {0, 1, 3}) {
        const SteppedWeights beside = SteppedBeside(rule, grad, weight, offset);
        EXPECT_EQ(beside.weight, expected.weight) << RuleName(rule) << ", " << n << ", " << offset;
        EXPECT_EQ(beside.result.weights_digest, expected.result.weights_digest);
        EXPECT_EQ(beside.result.slots_digest, expected.result.slots_digest);
      }
    }
  }
}

}  // namespace
}  // namespace kaon::kernels
