#include "kernels/reduce/mean.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "kernels/reduce/digest.h"
#include "kernels/reduce/grad_norm.h"
#include "kernels/vector_dispatch.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

// The size exceeds one thread's range and ends with an incomplete block and register.
constexpr size_t kElements = 3 * 65536 + 4096 + 77;

// Returns the mean and its facts.
auto Finished(int threads, InstructionSet isa, std::vector<float> sum) {
  ChosenInstructionSet() = isa;
  ThreadPool pool(threads);
  const MeanFacts facts = FinishMeanOn(
      pool, {.total_weight = 7, .loss_scale = 3, .parameter_id = 9}, absl::MakeSpan(sum));
  return std::make_tuple(std::move(sum), facts.norm.sum_squares, facts.norm.absolute_max,
                         facts.norm.num_zeros, facts.norm.num_non_finite, facts.digest);
}

TEST(MeanTest, HasTheSameBitsOnAnyNumberOfThreadsAndAnyInstructionSet) {
  std::vector<float> sum = reference::GaussianVector(kElements, 1);
  sum[12345] = 0;
  sum[kElements - 1] = HUGE_VALF;
  const auto expected = Finished(1, InstructionSet::kScalar, sum);
  EXPECT_EQ(std::get<3>(expected), 1);
  EXPECT_EQ(std::get<4>(expected), 1);
  for (const InstructionSet isa : InstructionSets()) {
    for (const int threads : {1, 2, 8}) {
      EXPECT_EQ(Finished(threads, isa, sum), expected) << threads << ", " << static_cast<int>(isa);
    }
  }
}

// One pass gives the results of three passes over the sum ([C1]).
TEST(MeanTest, SaysWhatSeparatePassesSay) {
  std::vector<float> mean = reference::GaussianVector(kElements, 2);
  ThreadPool pool(2);
  const MeanFacts facts = FinishMeanOn(
      pool, {.total_weight = 7, .loss_scale = 3, .parameter_id = 9}, absl::MakeSpan(mean));
  EXPECT_EQ(facts.norm.sum_squares, ComputeGradNorm(mean).sum_squares);
  EXPECT_EQ(facts.norm.absolute_max, ComputeGradNorm(mean).absolute_max);
  EXPECT_EQ(facts.digest, TensorDigest(9, kGradientSlot, mean));
}

}  // namespace
}  // namespace kaon::kernels
