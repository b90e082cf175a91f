#include "kernels/cpu/cpu_backend.h"

#include <glog/logging.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/cpu/update_workspace.h"
#include "kernels/gemm/reference_gemm.h"
#include "kernels/reduce/digest.h"
#include "kernels/vector_dispatch.h"
#include "tests/conformance/backend/backend_conformance.h"
#include "tests/conformance/backend/thread_count_conformance.h"
#include "tests/kernels/instruction_sets.h"

namespace kaon::kernels {
namespace {

std::unique_ptr<Backend> MakeReferenceBackend() {
  return std::make_unique<CpuBackend>(std::make_unique<ReferenceGemm>());
}

INSTANTIATE_TEST_SUITE_P(
    CpuReference, BackendConformanceTest,
    ::testing::ValuesIn(OnEachInstructionSet<BackendMaker>(&MakeReferenceBackend)));

// The tiles are those of the backend's threads; the reference product accepts any number of rows.
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
          backend.Accumulate(mean)->FinishMean({.total_weight = 3, .loss_scale = 2});
      const UpdateResult result = parameter.Update(backend, mean, {0.1, 0.5, 1});
      return std::make_tuple(parameter.weight, result.weights_digest, result.slots_digest, mean,
                             facts.norm.sum_squares, facts.norm.absolute_max, facts.digest);
    };
    const auto expected = stepped(1, InstructionSet::kScalar);
    EXPECT_EQ(std::get<1>(expected), TensorDigest(0, kWeightSlot, std::get<0>(expected)));
    // All combinations would take long, because the products may be scalar.
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

// Computes new weights in place, or `offset` elements after the start of a cache line.
SteppedWeights SteppedBeside(CpuBackend& backend, const RuleConfig& rule,
                             const std::vector<float>& grad, std::vector<float> weight,
                             absl::optional<int> offset) {
  const std::vector<uint64_t> shape = {weight.size()};
  std::vector<std::vector<std::byte>> slots;
  std::vector<Region> regions;
  for (const StateSlot& slot : StateSlots(rule, shape)) slots.emplace_back(slot.num_bytes);
  for (std::vector<std::byte>& slot : slots) regions.emplace_back(absl::MakeSpan(slot));
  constexpr size_t kLineFloats = 16;
  std::vector<float> memory(weight.size() + 3 * kLineFloats, std::nanf(""));
  const size_t into_line = reinterpret_cast<uintptr_t>(memory.data()) / sizeof(float) % kLineFloats;
  const absl::Span<float> lines = absl::MakeSpan(memory).subspan(kLineFloats - into_line);
  CHECK_EQ(reinterpret_cast<uintptr_t>(lines.data()) % 64, 0u);
  const absl::Span<float> to =
      offset ? lines.subspan(*offset, weight.size()) : absl::MakeSpan(weight);
  const UpdateResult result = backend.ApplyUpdate(rule, {.lr = 0.1, .clip_factor = 1, .t = 1},
                                                  shape, {grad, weight, to, regions});
  return {std::vector<float>(to.begin(), to.end()), result};
}

void ExpectTheSame(const SteppedWeights& actual, const SteppedWeights& expected,
                   const std::string& what) {
  EXPECT_EQ(actual.weight, expected.weight) << what;
  EXPECT_EQ(actual.result.weights_digest, expected.result.weights_digest) << what;
  EXPECT_EQ(actual.result.slots_digest, expected.result.slots_digest) << what;
}

// The new weights of long parameters bypass the caches if they begin with a cache line.
TEST(CpuBackendTest, NewWeightsBesideTheOldOnesAreThoseInPlace) {
  AdamWConfig bf16_adamw;
  bf16_adamw.momentum_dtype = StateDType::kBFloat16;
  const std::vector<RuleConfig> rules = {AdamWConfig{}, bf16_adamw, SgdConfig{}, LionConfig{}};
  for (const size_t n : {size_t{1000}, kLeastStreamedBytes / sizeof(float) + 4099}) {
    const std::vector<float> grad = reference::GaussianVector(n, 1);
    const std::vector<float> weight = reference::GaussianVector(n, 2);
    for (const RuleConfig& rule : rules) {
      ChosenInstructionSet() = InstructionSet::kScalar;
      CpuBackend plain(std::make_unique<ReferenceGemm>(), 1);
      const SteppedWeights expected = SteppedBeside(plain, rule, grad, weight, absl::nullopt);
      for (const InstructionSet isa : InstructionSets()) {
        ChosenInstructionSet() = isa;
        for (const int threads : {1, 2, 8}) {
          CpuBackend backend(std::make_unique<ReferenceGemm>(), threads);
          // Each alignment once is enough.
          for (const int offset : threads == 2 ? std::vector<int>{0, 1, 16} : std::vector<int>{0}) {
            ExpectTheSame(
                SteppedBeside(backend, rule, grad, weight, offset), expected,
                absl::StrCat(RuleName(rule), ", ", n, " elements, set ", static_cast<int>(isa),
                             ", ", threads, " threads, offset ", offset));
          }
        }
      }
    }
  }
  ChosenInstructionSet() = WidestInstructionSet();
}

// Host memory may hold the gradients as a message had them.
TEST(CpuBackendTest, GradientsInHalfPrecisionNeedNoAlignment) {
  const size_t n = 3 * 4099;
  const std::vector<float> weight = reference::GaussianVector(n, 1);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<std::byte> bytes(1 + 2 * n);
    FromFloat(dtype, reference::GaussianVector(n, 2), bytes.data() + 1);
    const absl::Span<const std::byte> odd = absl::MakeConstSpan(bytes).subspan(1);
    const std::vector<std::byte> even(odd.begin(), odd.end());
    for (const RuleConfig& rule : {RuleConfig(MuonConfig{}), RuleConfig(SgdConfig{})}) {
      const auto stepped = [&](absl::Span<const std::byte> grad) {
        Parameter parameter(rule, {3, 4099}, weight);
        CpuBackend backend(std::make_unique<ReferenceGemm>());
        backend.ApplyUpdate(
            rule, {1e-2, 1, 1}, parameter.shape,
            {GradView(dtype, grad), parameter.weight, parameter.weight, parameter.StateRegions()});
        return parameter.weight;
      };
      EXPECT_EQ(stepped(odd), stepped(even)) << RuleName(rule);
    }
  }
}

std::unique_ptr<Backend> BackendOf(int threads) {
  return std::make_unique<CpuBackend>(std::make_unique<ReferenceGemm>(), threads);
}

// Vectors of these sizes; a size of 0 is a frozen vector of 100 elements.
size_t NumConcurrent(const std::vector<uint64_t>& sizes, int threads = 2,
                     const RuleConfig& first = AdamWConfig()) {
  const RuleConfig others = AdamWConfig();
  const uint64_t frozen = 100;
  std::vector<SizedUpdate> updates;
  for (const uint64_t& size : sizes) {
    const RuleConfig* const rule = &size == &sizes[0] ? &first : &others;
    updates.push_back({size == 0 ? nullptr : rule, {size == 0 ? &frozen : &size, 1}});
  }
  return BackendOf(threads)->NumConcurrentUpdates(updates);
}

constexpr uint64_t kSmall = kSmallUpdateElements;

TEST(ConcurrentUpdatesTest, SmallOnesThatFollowOneAnother) {
  EXPECT_EQ(NumConcurrent({kSmall}), 1u);
  EXPECT_EQ(NumConcurrent({kSmall, kSmall, 1}), 3u);
  EXPECT_EQ(NumConcurrent({kSmall, kSmall, kSmall + 1, 6}), 2u);
  // A large one has all threads for itself.
  EXPECT_EQ(NumConcurrent({kSmall + 1, kSmall + 1}), 1u);
  EXPECT_EQ(NumConcurrent({uint64_t{1} << 40, 6}), 1u);
  // Readers do not wait for more than 512 Ki elements per thread.
  EXPECT_EQ(NumConcurrent(std::vector<uint64_t>(100, kSmall)), 4u);
  EXPECT_EQ(NumConcurrent(std::vector<uint64_t>(100, kSmall), 8), 16u);
  EXPECT_EQ(NumConcurrent(std::vector<uint64_t>(10000, 64)), 10000u);
}

TEST(ConcurrentUpdatesTest, OnlyIfEveryThreadHasWork) {
  EXPECT_EQ(NumConcurrent({100, 100}, 1), 1u);
  EXPECT_EQ(NumConcurrent({100, 100}, 3), 1u);
  EXPECT_EQ(NumConcurrent({100, 100, 100}, 3), 3u);
  // Most of the work is that of one of them.
  EXPECT_EQ(NumConcurrent({1000, 100, 100}), 1u);
  EXPECT_EQ(NumConcurrent({100, 100, 1000}), 2u);
  EXPECT_EQ(NumConcurrent({100, 100}, 2, MuonConfig()), 1u);
  // A frozen parameter is no work.
  EXPECT_EQ(NumConcurrent({100, 0}), 1u);
  EXPECT_EQ(NumConcurrent({100, 0, 100}), 3u);
}

TEST(ConcurrentUpdatesTest, AllocateWhatTheLargestOfThemDo) {
  const RuleConfig muon = MuonConfig();
  const uint64_t small[] = {64, 64};
  const uint64_t large[] = {256, 256};
  const std::unique_ptr<Backend> backend = BackendOf(2);
  const auto alone = [](absl::Span<const uint64_t> shape, uint32_t threads) {
    return UpdateWorkspaceBytes("cpu/reference", threads, MuonConfig(), shape);
  };
  EXPECT_EQ(backend->WorkspaceBytes({{&muon, large}}), alone(large, 2));
  EXPECT_EQ(backend->WorkspaceBytes({{&muon, small}, {&muon, large}, {nullptr, large}}),
            alone(small, 1) + alone(large, 1));
  // Two threads run two of them at a time.
  EXPECT_EQ(backend->WorkspaceBytes({{&muon, small}, {&muon, large}, {&muon, large}}),
            2 * alone(large, 1));
  EXPECT_EQ(backend->WorkspaceBytes({{nullptr, large}}), 0u);
}

}  // namespace
}  // namespace kaon::kernels
