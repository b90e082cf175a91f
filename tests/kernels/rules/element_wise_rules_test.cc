#include "kernels/rules/element_wise_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/optimizer_rule.h"
#include "kernels/reduce/digest_products.h"
#include "kernels/rules/element_wise_kernel.h"
#include "kernels/vector_dispatch.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

// Whole steps and a part of one in the last block.
constexpr int64_t kNumElements = 2 * kDigestBlock + 200;

// Options of an update that must not change its result.
struct Way {
  InstructionSet isa = InstructionSet::kScalar;
  DType grad_dtype = DType::kFloat32;
  // New weights bypass the caches and are stored apart from the old ones.
  bool streams = false;
};

struct FreeMemory {
  void operator()(float* memory) const { std::free(memory); }
};

// Returns the weight and each slot after three updates. Checks that the chunks' sums are those of
// the results.
template <typename Rule>
std::vector<std::vector<float>> RunThreeUpdates(const Way& way,
                                                const typename Rule::Config& config) {
  const int num_slots = Rule::NumSlots(config);
  std::vector<std::vector<float>> buffers(1 + num_slots, std::vector<float>(kNumElements));
  buffers[0] = reference::GaussianVector(kNumElements, 1);
  constexpr size_t kLineBytes = 64;
  const std::unique_ptr<float, FreeMemory> lines(static_cast<float*>(std::aligned_alloc(
      kLineBytes, (kNumElements * sizeof(float) / kLineBytes + 1) * kLineBytes)));
  for (int t = 1; t <= 3; ++t) {
    // The gradients have so few bits that both half precisions can represent them.
    std::vector<float> grad = reference::GaussianVector(kNumElements, 1 + t);
    for (float& value : grad) value = RoundTo(DType::kBFloat16, RoundTo(DType::kFloat16, value));
    std::vector<std::byte> stored(kNumElements * SizeOf(way.grad_dtype));
    FromFloat(way.grad_dtype, grad, stored.data());
    const typename Rule::Scalars scalars = Rule::Prepare(config, 1e-2, 0.7, t);
    float* const written = way.streams ? lines.get() : buffers[0].data();
    for (int64_t first = 0; first < kNumElements; first += kDigestBlock) {
      ElementWiseArrays<Rule> arrays;
      arrays.grad = stored.data() + first * static_cast<int64_t>(SizeOf(way.grad_dtype));
      arrays.grad_dtype = way.grad_dtype;
      arrays.param = buffers[0].data() + first;
      arrays.new_param = written + first;
      arrays.streams = way.streams;
      for (int k = 0; k < num_slots; ++k) arrays.state[k] = buffers[1 + k].data() + first;
      arrays.n = std::min(kDigestBlock, kNumElements - first);
      arrays.has_next = true;
      for (NextBytes& next : arrays.next) next = {stored.data(), 0};
      uint64_t sums[1 + Rule::kMaxSlots];
      RunElementWise<Rule>(way.isa, num_slots, scalars, arrays, sums);
      EXPECT_EQ(sums[0], SumOfProducts(written + first, arrays.n, 0));
      for (int k = 0; k < num_slots; ++k) {
        EXPECT_EQ(sums[1 + k], SumOfProducts(arrays.state[k], arrays.n, 0)) << k;
      }
    }
    std::copy_n(written, kNumElements, buffers[0].data());
  }
  return buffers;
}

// Returns the default and a configuration that uses every slot, each with both kinds of decay: on
// the weight and on the gradient.
template <typename Config>
std::vector<Config> Configurations() {
  Config all;
  if constexpr (std::is_same_v<Config, AdamWConfig>) all.amsgrad = true;
  if constexpr (std::is_same_v<Config, SgdConfig>) all.momentum = 0.9;
  std::vector<Config> configurations;
  for (Config config : {Config(), all}) {
    config.weight_decay = 0.1;
    for (const DecayMode mode : {DecayMode::kDecoupled, DecayMode::kL2}) {
      config.decay_mode = mode;
      configurations.push_back(config);
    }
  }
  return configurations;
}

template <typename List>
struct GTestTypes;
template <typename... Rules>
struct GTestTypes<TypeList<Rules...>> {
  using type = ::testing::Types<Rules...>;
};

template <typename Rule>
class ElementWiseRulesTest : public ::testing::Test {};
TYPED_TEST_SUITE(ElementWiseRulesTest, GTestTypes<ElementWiseRules>::type);

TYPED_TEST(ElementWiseRulesTest, EveryWayGivesTheSameBits) {
  for (const auto& config : Configurations<typename TypeParam::Config>()) {
    const auto expected = RunThreeUpdates<TypeParam>({}, config);
    for (const InstructionSet isa : InstructionSets()) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        for (const bool streams : {false, true}) {
          SCOPED_TRACE(testing::Message() << "set " << static_cast<int>(isa) << ", "
                                          << NameOf(dtype) << ", streams " << streams);
          EXPECT_EQ(RunThreeUpdates<TypeParam>({isa, dtype, streams}, config), expected);
        }
      }
    }
  }
}

TYPED_TEST(ElementWiseRulesTest, ConfigurationsUseTheLeastAndTheMostSlots) {
  const auto configurations = Configurations<typename TypeParam::Config>();
  EXPECT_EQ(TypeParam::NumSlots(configurations.front()), TypeParam::kMinSlots);
  EXPECT_EQ(TypeParam::NumSlots(configurations.back()), TypeParam::kMaxSlots);
}

TYPED_TEST(ElementWiseRulesTest, TheListFindsTheRuleByItsConfiguration) {
  using Found = typename FindRule<typename TypeParam::Config, ElementWiseRules>::type;
  EXPECT_TRUE((std::is_same_v<Found, TypeParam>));
  EXPECT_TRUE((std::is_void_v<typename FindRule<int, ElementWiseRules>::type>));
}

}  // namespace
}  // namespace kaon::kernels
