#include "kernels/rules/element_wise_rules.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "kernels/optimizer_rule.h"
#include "kernels/rules/element_wise_kernel.h"
#include "kernels/vector_dispatch.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

// Weight, then each slot, after three updates.
template <typename Rule>
std::vector<std::vector<float>> RunThreeUpdates(InstructionSet isa,
                                                const typename Rule::Config& config) {
  constexpr int64_t kNumElements = 1037;
  const int num_slots = Rule::NumSlots(config);
  std::vector<std::vector<float>> buffers(1 + num_slots, std::vector<float>(kNumElements));
  buffers[0] = reference::GaussianVector(kNumElements, 1);
  for (int t = 1; t <= 3; ++t) {
    const std::vector<float> grad = reference::GaussianVector(kNumElements, 1 + t);
    ElementWiseArrays<Rule> arrays;
    arrays.grad = grad.data();
    arrays.param = buffers[0].data();
    arrays.new_param = buffers[0].data();
    for (int k = 0; k < num_slots; ++k) arrays.state[k] = buffers[1 + k].data();
    arrays.n = kNumElements;
    const typename Rule::Scalars scalars = Rule::Prepare(config, 1e-2, 0.7, t);
    WithElementWiseKernel<Rule>(num_slots, [&](auto kernel) {
      RunFor<decltype(kernel)>(isa, &scalars, static_cast<const ElementWiseArrays<Rule>*>(&arrays));
    });
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
    const auto expected = RunThreeUpdates<TypeParam>(InstructionSet::kScalar, config);
    if (WidestInstructionSet() >= InstructionSet::kAvx2) {
      EXPECT_EQ(RunThreeUpdates<TypeParam>(InstructionSet::kAvx2, config), expected);
    }
    if (WidestInstructionSet() >= InstructionSet::kAvx512) {
      EXPECT_EQ(RunThreeUpdates<TypeParam>(InstructionSet::kAvx512, config), expected);
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
