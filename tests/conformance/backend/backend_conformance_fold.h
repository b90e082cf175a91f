// Conformance of a backend's gradient path: folding.
// Part of the suite of backend_conformance.h; used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_FOLD_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_FOLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

TEST_P(BackendConformanceTest, FoldsInEveryDTypeAsOneFusedMultiplyAdd) {
  const std::vector<float> x = reference::GaussianVector(1003, 1);
  const std::vector<float> y = reference::GaussianVector(1003, 2);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    std::vector<float> acc(x.size(), 7.0f);
    EXPECT_FALSE(FoldVector(dtype, x, 0.3f, true, acc).non_finite);
    EXPECT_FALSE(FoldVector(dtype, y, 1.7f, false, acc).non_finite);
    for (size_t i = 0; i < acc.size(); ++i) {
      ASSERT_EQ(acc[i], std::fma(1.7f, RoundTo(dtype, y[i]), 0.3f * RoundTo(dtype, x[i]))) << i;
    }
  }
}

TEST_P(BackendConformanceTest, FoldFindsAnElementThatIsNotFinite) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const float bad : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
      std::vector<float> x(517, 1.0f);
      x[300] = bad;
      std::vector<float> acc(x.size());
      EXPECT_TRUE(FoldVector(dtype, x, 0.0f, true, acc).non_finite);
      EXPECT_TRUE(FoldVector(dtype, x, 2.0f, false, acc).non_finite);
      EXPECT_EQ(acc[299], 2.0f);
    }
  }
}

TEST_P(BackendConformanceTest, FoldReportsOnlyTheGradientNotTheAccumulator) {
  std::vector<float> acc(9, HUGE_VALF);
  const std::vector<float> ones(9, 1.0f);
  EXPECT_FALSE(FoldVector(DType::kFloat32, ones, 1.0f, false, acc).non_finite);
}

TEST_P(BackendConformanceTest, FoldOfNothingIsNothing) {
  std::vector<float> acc;
  EXPECT_FALSE(FoldVector(DType::kBFloat16, {}, 1.0f, true, acc).non_finite);
  EXPECT_EQ(FoldedSquares(DType::kBFloat16, {}), 0);
}

// Folding measures the norm of the worker's own gradient (P11), before its weight and not of the
// sum. The squares of the small and large values are outside the range of fp32.
TEST_P(BackendConformanceTest, FoldTakesTheSquaresOfGradientsOfAnySize) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const double size : {1e-42, 1e-30, 1e-18, 1e-3, 1.0, 3e4, 1e19, 1e34}) {
      std::vector<float> x = reference::GaussianVector(3 * kFoldBlockElements + 517, 8);
      for (float& g : x) g = RoundTo(dtype, static_cast<float>(g * size / 4));
      double expected = 0;
      for (const float g : x) expected += static_cast<double>(g) * g;
      if (!std::isfinite(expected)) continue;
      for (const bool first : {true, false}) {
        EXPECT_NEAR(FoldedSquares(dtype, x, first), expected, 1e-5 * expected)
            << NameOf(dtype) << " of size " << size;
      }
    }
  }
}

TEST_P(BackendConformanceTest, FoldTakesTheSquaresOfFewElementsAmongZeros) {
  for (const float value : {1e-30f, 1.0f, 1e30f}) {
    std::vector<float> x(2 * kFoldBlockElements);
    EXPECT_EQ(FoldedSquares(DType::kFloat32, x), 0);
    x[kFoldBlockElements + 300] = value;
    const double expected = static_cast<double>(value) * value;
    EXPECT_NEAR(FoldedSquares(DType::kFloat32, x), expected, 1e-5 * expected);
  }
}

TEST_P(BackendConformanceTest, ChunksOfWholeBlocksHaveTheSquaresOfOneChunk) {
  const std::vector<float> x = reference::GaussianVector(4 * kFoldBlockElements + 100, 9);
  const std::vector<std::byte> bytes = Encode(DType::kFloat32, x);
  GradientSum sum(*backend_, x);
  for (size_t begin = 0; begin < x.size(); begin += 2 * kFoldBlockElements) {
    const size_t count = std::min<size_t>(2 * kFoldBlockElements, x.size() - begin);
    const auto slice = absl::MakeConstSpan(bytes).subspan(1 + 4 * begin, 4 * count);
    sum.accumulation().Fold({DType::kFloat32, {&slice, 1}, begin, 0, 1.0f, true});
  }
  EXPECT_EQ(sum.accumulation().FactsOf(0).sum_squares, FoldedSquares(DType::kFloat32, x));
  EXPECT_TRUE(SameBits(sum.Floats(), x));
}

// A transport cuts a chunk anywhere, also inside a block and inside an element.
TEST_P(BackendConformanceTest, NoBitDependsOnTheSlicesOfAChunk) {
  const size_t n = 3 * kFoldBlockElements + 517;
  const std::vector<float> x = reference::GaussianVector(n, 10);
  const std::vector<float> before = reference::GaussianVector(n + 7, 11);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const std::vector<std::byte> bytes = Encode(dtype, x);
    const auto folded = [&](const std::vector<absl::Span<const std::byte>>& slices, bool first) {
      GradientSum sum(*backend_, before);
      sum.accumulation().Fold({dtype, slices, 5, 0, 0.7f, first});
      return std::make_pair(sum.Floats(), sum.accumulation().FactsOf(0).sum_squares);
    };
    const absl::Span<const std::byte> whole = absl::MakeConstSpan(bytes).subspan(1);
    for (const bool first : {true, false}) {
      const auto expected = folded({whole}, first);
      for (const size_t piece : {size_t{1}, size_t{1001}, size_t{4096}, size_t{4099}}) {
        std::vector<absl::Span<const std::byte>> slices = {{}};
        for (size_t at = 0; at < whole.size(); at += piece) {
          slices.push_back(whole.subspan(at, piece));
          if (at == 0) slices.emplace_back();
        }
        const auto actual = folded(slices, first);
        EXPECT_TRUE(SameBits(actual.first, expected.first)) << piece;
        EXPECT_EQ(actual.second, expected.second) << piece;
      }
      // Elements outside the chunk keep their values.
      EXPECT_EQ(expected.first[4], before[4]);
      EXPECT_EQ(expected.first[n + 5], before[n + 5]);
      EXPECT_NE(expected.first[5], before[5]);
    }
  }
}

// The memory has any alignment. The caller may change it once Fold returns.
TEST_P(BackendConformanceTest, AChunkInMemoryFoldsAsItsBytesDo) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const size_t n : {size_t{1}, size_t{1003}, (size_t{1} << 20) / SizeOf(dtype) + 517}) {
      const std::vector<std::byte> bytes = Encode(dtype, reference::GaussianVector(n, 14));
      const absl::Span<const std::byte> whole = absl::MakeConstSpan(bytes).subspan(1);
      const std::vector<float> before = reference::GaussianVector(n + 7, 15);
      for (const uint64_t at : {0, 1, 2}) {
        GradientSum expected(*backend_, before);
        expected.accumulation().Fold({dtype, {&whole, 1}, 5, 0, 0.7f, at == 1});
        const Tensor tensor(*backend_, std::vector<std::byte>(at + whole.size()));
        const Region memory = tensor.region().Sub(at, whole.size());
        backend_->CopyIn(whole, memory);
        GradientSum sum(*backend_, before);
        sum.accumulation().Fold({dtype, {}, 5, 0, 0.7f, at == 1, memory});
        backend_->CopyIn(std::vector<std::byte>(whole.size()), memory);
        EXPECT_TRUE(SameBits(sum.Floats(), expected.Floats())) << NameOf(dtype) << " " << n;
        EXPECT_EQ(sum.accumulation().FactsOf(0).sum_squares,
                  expected.accumulation().FactsOf(0).sum_squares);
      }
    }
  }
}

TEST_P(BackendConformanceTest, AnAccumulationKeepsTheFactsOfEachContribution) {
  const std::vector<float> x = reference::GaussianVector(1500, 12);
  std::vector<float> y = x;
  y[1200] = HUGE_VALF;
  GradientSum sum(*backend_, x);
  for (int step = 0; step < 2; ++step) {
    sum.accumulation().Begin();
    for (const uint32_t contribution : {0, 2, 3}) {
      const std::vector<std::byte> bytes =
          Encode(DType::kFloat32, step == 0 && contribution == 2 ? y : x);
      sum.Fold(DType::kFloat32, absl::MakeConstSpan(bytes).subspan(1), 1.0f, contribution,
               contribution == 0);
    }
    for (const uint32_t contribution : {0, 1, 2, 3, 4}) {
      const FoldFacts facts = sum.accumulation().FactsOf(contribution);
      EXPECT_EQ(facts.non_finite, step == 0 && contribution == 2) << contribution;
      if (facts.non_finite) continue;
      const bool folded = contribution != 1 && contribution != 4;
      EXPECT_EQ(facts.sum_squares, folded ? FoldedSquares(DType::kFloat32, x) : 0) << contribution;
    }
  }
  sum.accumulation().Begin();
  EXPECT_EQ(sum.accumulation().FactsOf(0).sum_squares, 0);
}

TEST_P(BackendConformanceTest, ASumIsSetToZero) {
  std::vector<float> x = reference::GaussianVector(70001, 13);
  x[3] = HUGE_VALF;
  GradientSum sum(*backend_, x);
  sum.accumulation().SetZero();
  EXPECT_EQ(sum.accumulation().FinishMean({}).norm.num_zeros, 70001);
  EXPECT_TRUE(SameBits(sum.Floats(), std::vector<float>(x.size())));
}

TEST_P(BackendConformanceTest, SquaresOfWhatIsNotFiniteAreNotFinite) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const float bad : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
      std::vector<float> x(517, 1.0f);
      x[516] = bad;
      EXPECT_FALSE(std::isfinite(FoldedSquares(dtype, x)));
    }
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_FOLD_H_
