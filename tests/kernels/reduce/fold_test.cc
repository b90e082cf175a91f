#include "kernels/reduce/fold.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

struct Folded {
  std::vector<float> acc;
  double sum_squares = 0;
  int64_t non_finite = -1;
};

// `in` in fp32, `shift` bytes off alignment, onto 0.25s.
Folded Fold(const std::vector<float>& in, bool first, size_t shift = 0) {
  std::vector<std::byte> bytes(shift + 4 * in.size());
  if (!in.empty()) std::memcpy(bytes.data() + shift, in.data(), 4 * in.size());
  Folded result;
  result.acc.assign(in.size(), 0.25f);
  result.non_finite = FoldElements(DType::kFloat32, bytes.data() + shift, 0.3f, first,
                                   absl::MakeSpan(result.acc), &result.sum_squares);
  return result;
}

// Returns the sum of squares in float64, one after the other.
double Squares(const std::vector<float>& in) {
  double sum = 0;
  for (const float x : in) sum += static_cast<double>(x) * x;
  return sum;
}

// Around whole vectors, lanes and blocks.
constexpr int64_t kSizes[] = {0, 1, 15, 63, 64, 65, 1023, 1024, 1025, 1088, 2047, 2048, 5000};

TEST(FoldTest, EveryElementIsFoldedAndSquaredOnce) {
  for (const int64_t size : kSizes) {
    const std::vector<float> x = reference::GaussianVector(size, 1);
    for (const bool first : {true, false}) {
      const Folded folded = Fold(x, first);
      EXPECT_EQ(folded.non_finite, -1);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(folded.acc[i], first ? 0.3f * x[i] : std::fma(0.3f, x[i], 0.25f)) << i;
      }
      EXPECT_NEAR(folded.sum_squares, Squares(x), 1e-6 * Squares(x)) << size;
    }
  }
}

TEST(FoldTest, NoBitDependsOnWhereTheBytesLie) {
  const std::vector<float> x = reference::GaussianVector(5000, 2);
  const Folded expected = Fold(x, false);
  for (const size_t shift : {1, 3, 4, 31}) {
    const Folded folded = Fold(x, false, shift);
    EXPECT_EQ(folded.acc, expected.acc);
    EXPECT_EQ(folded.sum_squares, expected.sum_squares);
  }
}

// A block beyond the range of fp32 is summed in fp64, and no other block loses accuracy.
TEST(FoldTest, BlocksOfDifferentSizeAreEachTakenAsTheyNeed) {
  std::vector<float> x = reference::GaussianVector(3 * kFoldBlockElements, 3);
  for (int64_t i = 0; i < kFoldBlockElements; ++i) x[i] *= 1e25f;
  const double large = Squares(x);
  EXPECT_NEAR(Fold(x, true).sum_squares, large, 1e-6 * large);
  for (int64_t i = 0; i < kFoldBlockElements; ++i) x[i] *= 1e-30f;
  const double rest = Squares(x);
  EXPECT_NEAR(Fold(x, true).sum_squares, rest, 1e-6 * rest);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= 1e-28f;
  const double small = Squares(x);
  EXPECT_NEAR(Fold(x, true).sum_squares, small, 1e-6 * small);
}

TEST(FoldTest, TheFirstElementThatIsNotFiniteIsTheOneOfTheFirstBlock) {
  std::vector<float> x(3 * kFoldBlockElements, 1.0f);
  x[0] = 3e38f;
  EXPECT_EQ(Fold(x, true).non_finite, -1);
  x[2 * kFoldBlockElements + 1] = std::nanf("");
  EXPECT_EQ(Fold(x, true).non_finite, 2 * kFoldBlockElements + 1);
  x[kFoldBlockElements + 7] = -HUGE_VALF;
  EXPECT_EQ(Fold(x, false).non_finite, kFoldBlockElements + 7);
}

// Folding adds to the present sum.
TEST(FoldTest, ASumOfZerosIsLeftAsItIs) {
  const std::vector<std::byte> zeros(4 * 100);
  std::vector<float> acc(100);
  double sum_squares = 5;
  FoldElements(DType::kFloat32, zeros.data(), 1, true, absl::MakeSpan(acc), &sum_squares);
  EXPECT_EQ(sum_squares, 5);
}

}  // namespace
}  // namespace kaon::kernels
