#include "kernels/rules/element_wise_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/optimizer_rule.h"
#include "kernels/rules/element_wise_kernel.h"
#include "kernels/vector_dispatch.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

// Weight, then each slot, after three updates; each update adds its digest's sums to `sums`.
template <typename Rule>
std::vector<std::vector<float>> RunThreeUpdates(InstructionSet isa,
                                                const typename Rule::Config& config,
                                                std::vector<uint64_t>& sums) {
  constexpr int64_t kNumElements = 1037;
  const int num_slots = Rule::NumSlots(config);
  std::vector<std::vector<float>> buffers(1 + num_slots, std::vector<float>(kNumElements));
  buffers[0] = reference::GaussianVector(kNumElements, 1);
  for (int t = 1; t <= 3; ++t) {
    const std::vector<float> grad = reference::GaussianVector(kNumElements, 1 + t);
    const typename Rule::Scalars scalars = Rule::Prepare(config, 1e-2, 0.7, t);
    for (int64_t first = 0; first < kNumElements; first += kDigestBlock) {
      ElementWiseArrays<Rule> arrays;
      arrays.grad = reinterpret_cast<const std::byte*>(grad.data() + first);
      arrays.grad_dtype = DType::kFloat32;
      arrays.param = buffers[0].data() + first;
      arrays.new_param = buffers[0].data() + first;
      for (int k = 0; k < num_slots; ++k) arrays.state[k] = buffers[1 + k].data() + first;
      arrays.n = std::min(kDigestBlock, kNumElements - first);
      uint64_t of_chunk[1 + Rule::kMaxSlots];
      RunElementWise<Rule>(isa, num_slots, scalars, arrays, of_chunk);
      sums.insert(sums.end(), of_chunk, of_chunk + 1 + num_slots);
    }
  }
  return buffers;
}

// The default and what uses every slot, each with decay on the weight and on the gradient.
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

TYPED_TEST(ElementWiseRulesTest, EveryInstructionSetGivesTheSameBits) {
  for (const auto& config : Configurations<typename TypeParam::Config>()) {
    std::vector<uint64_t> expected_sums;
    const auto expected =
        RunThreeUpdates<TypeParam>(InstructionSet::kScalar, config, expected_sums);
    for (const InstructionSet isa : InstructionSets()) {
      std::vector<uint64_t> sums;
      EXPECT_EQ(RunThreeUpdates<TypeParam>(isa, config, sums), expected) << static_cast<int>(isa);
      EXPECT_EQ(sums, expected_sums) << static_cast<int>(isa);
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
