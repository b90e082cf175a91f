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
std::vector<std::vector<float>> RunThreeUpdates(InstructionSet isa) {
  constexpr int64_t kNumElements = 1037;
  std::vector<std::vector<float>> buffers(1 + Rule::kNumSlots, std::vector<float>(kNumElements));
  buffers[0] = reference::GaussianVector(kNumElements, 1);
  typename Rule::Config config;
  config.weight_decay = 0.1;
  for (int t = 1; t <= 3; ++t) {
    const std::vector<float> grad = reference::GaussianVector(kNumElements, 1 + t);
    ElementWiseArrays<Rule> arrays;
    arrays.grad = grad.data();
    arrays.param = buffers[0].data();
    arrays.new_param = buffers[0].data();
    for (int k = 0; k < Rule::kNumSlots; ++k) arrays.state[k] = buffers[1 + k].data();
    arrays.n = kNumElements;
    const typename Rule::Scalars scalars = Rule::Prepare(config, 1e-2, 0.7, t);
    RunFor<ElementWiseKernel<Rule>>(isa, &scalars,
                                    static_cast<const ElementWiseArrays<Rule>*>(&arrays));
  }
  return buffers;
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
  const auto expected = RunThreeUpdates<TypeParam>(InstructionSet::kScalar);
  if (WidestInstructionSet() >= InstructionSet::kAvx2) {
    EXPECT_EQ(RunThreeUpdates<TypeParam>(InstructionSet::kAvx2), expected);
  }
  if (WidestInstructionSet() >= InstructionSet::kAvx512) {
    EXPECT_EQ(RunThreeUpdates<TypeParam>(InstructionSet::kAvx512), expected);
  }
}

TYPED_TEST(ElementWiseRulesTest, TheListFindsTheRuleByItsConfiguration) {
  using Found = typename FindRule<typename TypeParam::Config, ElementWiseRules>::type;
  EXPECT_TRUE((std::is_same_v<Found, TypeParam>));
  EXPECT_TRUE((std::is_void_v<typename FindRule<int, ElementWiseRules>::type>));
}

}  // namespace
}  // namespace kaon::kernels
