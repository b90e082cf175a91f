#include "kernels/vector_dispatch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/float_bits.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

// The kinds of operation the kernels are made of.
struct MixedKernel {
  KAON_HOST_DEVICE static void Run(const float* x, const float* y, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const float product = x[i] * y[i] + 1.0f;
      const float root = std::sqrt(product * product);
      out[i] = std::fma(x[i], root, Float16ToFloat(FloatToFloat16(y[i]))) / (root + 2.0f);
    }
  }
};

TEST(VectorDispatchTest, EveryInstructionSetGivesTheSameBits) {
  const std::vector<float> x = reference::GaussianVector(1003, 1);
  const std::vector<float> y = reference::GaussianVector(1003, 2);
  std::vector<float> expected(x.size());
  RunVectorized<MixedKernel>(x.data(), y.data(), expected.data(), int64_t{1003});
  for (const InstructionSet isa : InstructionSets()) {
    std::vector<float> out(x.size());
    RunFor<MixedKernel>(isa, x.data(), y.data(), out.data(), int64_t{1003});
    EXPECT_EQ(memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0)
        << static_cast<int>(isa);
  }
}

struct SumKernel {
  KAON_HOST_DEVICE static int64_t Run(const int32_t* x, int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i];
    return sum;
  }
};

TEST(VectorDispatchTest, ReturnsTheKernelsResult) {
  const std::vector<int32_t> x = {1, 2, 3, 4, 5};
  for (const InstructionSet isa : InstructionSets()) {
    EXPECT_EQ(RunFor<SumKernel>(isa, x.data(), int64_t{5}), 15);
  }
}

}  // namespace
}  // namespace kaon::kernels
