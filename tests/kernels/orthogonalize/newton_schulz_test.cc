#include "kernels/orthogonalize/newton_schulz.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/reference_gemm.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

NewtonSchulzConfig Config(NsCoefficients coefficients, int steps, NsDType dtype) {
  NewtonSchulzConfig config;
  config.coefficients = coefficients;
  config.steps = steps;
  config.dtype = dtype;
  return config;
}

std::vector<float> Orthogonalized(const NewtonSchulzConfig& options, int rows, int cols,
                                  const std::vector<float>& in) {
  ReferenceGemm gemm;
  std::vector<float> out(in.size());
  NewtonSchulz(options, {rows, cols}, in, absl::MakeSpan(out), gemm);
  return out;
}

reference::Triples TriplesOf(const NewtonSchulzConfig& options) {
  return options.coefficients == NsCoefficients::kJordan ? reference::Jordan(options.steps)
                                                         : reference::PolarExpress(options.steps);
}

const NewtonSchulzConfig kEveryOption[] = {
    Config(NsCoefficients::kJordan, 5, NsDType::kFloat32),
    Config(NsCoefficients::kPolarExpress, 5, NsDType::kFloat32),
    Config(NsCoefficients::kPolarExpress, 8, NsDType::kFloat32),
    Config(NsCoefficients::kJordan, 5, NsDType::kBFloat16),
    Config(NsCoefficients::kPolarExpress, 5, NsDType::kBFloat16),
    Config(NsCoefficients::kPolarExpress, 8, NsDType::kBFloat16)};

// [N9], relative to float64: flat and Gaussian spectra, then four decades.
double FlatTolerance(const NewtonSchulzConfig& options) {
  return options.dtype == NsDType::kFloat32 ? 1e-5 : 4e-2;
}

double DecadesTolerance(const NewtonSchulzConfig& options) {
  if (options.dtype == NsDType::kFloat32) return options.steps > 5 ? 2e-4 : 5e-5;
  return options.steps > 5 ? 5e-1 : 2e-1;
}

constexpr int kShapes[][2] = {{16, 16}, {31, 77}, {77, 31}, {64, 100}};

void ExpectWithin(const NewtonSchulzConfig& options, int rows, int cols,
                  const std::vector<float>& in, double tolerance) {
  const std::vector<float> out = Orthogonalized(options, rows, cols, in);
  const reference::Matrix expected =
      reference::NewtonSchulz(reference::AsMatrix(in, rows, cols), TriplesOf(options));
  EXPECT_LE(reference::RelativeError(out, expected), tolerance)
      << rows << "x" << cols << " steps " << options.steps;
}

TEST(NewtonSchulzTest, FlatAndGaussianSpectraAgreeWithFloat64) {
  for (const NewtonSchulzConfig& options : kEveryOption) {
    for (const auto& [rows, cols] : kShapes) {
      ExpectWithin(options, rows, cols, reference::MatrixWithSpectrum(rows, cols, 0, 1),
                   FlatTolerance(options));
    }
    ExpectWithin(options, 31, 77, reference::GaussianVector(31 * 77, 2), FlatTolerance(options));
  }
}

TEST(NewtonSchulzTest, SpectraOverFourDecadesAgreeWithFloat64) {
  for (const NewtonSchulzConfig& options : kEveryOption) {
    for (const auto& [rows, cols] : kShapes) {
      ExpectWithin(options, rows, cols, reference::MatrixWithSpectrum(rows, cols, 4, 3),
                   DecadesTolerance(options));
    }
  }
}

// [N9]: the wide bf16 tolerances would hide a rounding in the wrong place.
TEST(NewtonSchulzTest, BFloat16RoundsExactlyWhereItStores) {
  for (const NewtonSchulzConfig& options : kEveryOption) {
    if (options.dtype != NsDType::kBFloat16 || options.steps > 5) continue;
    for (const auto& [rows, cols] : kShapes) {
      for (const double decades : {0.0, 4.0}) {
        const std::vector<float> in = reference::MatrixWithSpectrum(rows, cols, decades, 4);
        const reference::Matrix expected = reference::NewtonSchulzRoundingToBFloat16(
            reference::AsMatrix(in, rows, cols), TriplesOf(options));
        EXPECT_LE(reference::RelativeError(Orthogonalized(options, rows, cols, in), expected),
                  decades == 0 ? 1e-2 : 5e-2);
      }
    }
  }
}

// Edge case 1, [N5]: powers of two are exact, so those results have the same bits.
TEST(NewtonSchulzTest, ScaleOfTheInputDoesNotMatter) {
  const std::vector<float> in = reference::GaussianVector(20 * 33, 5);
  for (const NewtonSchulzConfig& options : kEveryOption) {
    const std::vector<float> expected = Orthogonalized(options, 20, 33, in);
    for (const float scale : {1e-30f, 1e-20f, 1e-9f, 3.0f, 1e15f, 1e30f}) {
      std::vector<float> scaled = in;
      for (float& x : scaled) x *= scale;
      EXPECT_LE(reference::RelativeError(Orthogonalized(options, 20, 33, scaled),
                                         reference::Widened(expected)),
                options.dtype == NsDType::kFloat32 ? 1e-5 : 2e-2)
          << scale;
    }
    for (const float scale : {0x1p-100f, 0x1p+100f}) {
      std::vector<float> scaled = in;
      for (float& x : scaled) x *= scale;
      EXPECT_EQ(Orthogonalized(options, 20, 33, scaled), expected) << scale;
    }
  }
}

// [N4]
TEST(NewtonSchulzTest, TransposedInputGivesTheTransposedBits) {
  const std::vector<float> in = reference::GaussianVector(13 * 40, 6);
  std::vector<float> transposed(in.size());
  for (int i = 0; i < 13; ++i) {
    for (int j = 0; j < 40; ++j) transposed[j * 13 + i] = in[i * 40 + j];
  }
  for (const NewtonSchulzConfig& options : kEveryOption) {
    const std::vector<float> wide = Orthogonalized(options, 13, 40, in);
    const std::vector<float> tall = Orthogonalized(options, 40, 13, transposed);
    for (int i = 0; i < 13; ++i) {
      for (int j = 0; j < 40; ++j) ASSERT_EQ(tall[j * 13 + i], wide[i * 40 + j]);
    }
  }
}

// [N4]
TEST(NewtonSchulzTest, NegatedInputGivesTheNegatedBits) {
  const std::vector<float> in = reference::GaussianVector(9 * 14, 7);
  std::vector<float> negated = in;
  for (float& x : negated) x = -x;
  for (const NewtonSchulzConfig& options : kEveryOption) {
    std::vector<float> out = Orthogonalized(options, 9, 14, negated);
    for (float& x : out) x = -x;
    EXPECT_EQ(out, Orthogonalized(options, 9, 14, in));
  }
}

// Edge case 2, [N8].
TEST(NewtonSchulzTest, ZeroGivesExactlyZero) {
  for (const NewtonSchulzConfig& options : kEveryOption) {
    const std::vector<float> zero(6 * 4, 0.0f);
    EXPECT_EQ(Orthogonalized(options, 6, 4, zero), zero);
  }
}

TEST(NewtonSchulzTest, EmptyMatrixIsLeftAlone) {
  EXPECT_TRUE(Orthogonalized({}, 0, 4, {}).empty());
  EXPECT_TRUE(Orthogonalized({}, 4, 0, {}).empty());
}

// Edge case 34, [N8]: v / ||v|| times the scalar polynomial. In bf16 the polynomial of one value is
// all cancellation, so only the emulator that rounds where we do says what is right.
TEST(NewtonSchulzTest, RowsColumnsAndSingleElements) {
  constexpr int kVectors[][2] = {{1, 9}, {9, 1}, {1, 1}};
  for (const NewtonSchulzConfig& options : kEveryOption) {
    for (const auto& [rows, cols] : kVectors) {
      const std::vector<float> in = reference::GaussianVector(rows * cols, 8);
      const reference::Matrix matrix = reference::AsMatrix(in, rows, cols);
      const bool rounds = options.dtype == NsDType::kBFloat16;
      const reference::Matrix expected =
          rounds ? reference::NewtonSchulzRoundingToBFloat16(matrix, TriplesOf(options))
                 : reference::NewtonSchulz(matrix, TriplesOf(options));
      EXPECT_LE(reference::RelativeError(Orthogonalized(options, rows, cols, in), expected),
                rounds ? 1e-2 : 1e-5)
          << rows << "x" << cols << " steps " << options.steps;
    }
    EXPECT_LT(Orthogonalized(options, 1, 1, {-1e-20f})[0], -0.6f);
  }
}

// [N8]: one singular value near 1. The null directions stay 0 in fp32; rounding to bf16 makes them
// a little more than null, and every set amplifies that.
TEST(NewtonSchulzTest, RankOneKeepsItsDirection) {
  const std::vector<float> u = reference::GaussianVector(20, 10);
  const std::vector<float> v = reference::GaussianVector(30, 11);
  const reference::Matrix u64 =
      reference::AsMatrix(u, 1, 20) / reference::Norm({u.begin(), u.end()});
  const reference::Matrix v64 =
      reference::AsMatrix(v, 1, 30) / reference::Norm({v.begin(), v.end()});
  std::vector<float> in;
  for (const float x : u) {
    for (const float y : v) in.push_back(x * y);
  }
  for (const NewtonSchulzConfig& options : kEveryOption) {
    const reference::Matrix out = reference::AsMatrix(Orthogonalized(options, 20, 30, in), 20, 30);
    const double along = (u64 * out * v64.transpose())(0, 0);
    EXPECT_GT(along, 0.66);
    EXPECT_LT(along, 1.2);
    if (options.dtype == NsDType::kFloat32) {
      EXPECT_NEAR(out.norm(), along, 1e-3);
    }
  }
}

// Edge case 50: never a step uphill.
TEST(NewtonSchulzTest, UpdateIsAlignedWithTheDirection) {
  for (const NewtonSchulzConfig& options : kEveryOption) {
    for (const double decades : {0.0, 4.0, 12.0}) {
      const std::vector<float> in = reference::MatrixWithSpectrum(24, 32, decades, 12);
      const std::vector<float> out = Orthogonalized(options, 24, 32, in);
      double inner = 0;
      for (size_t i = 0; i < in.size(); ++i) inner += static_cast<double>(in[i]) * out[i];
      EXPECT_GT(inner, 0);
    }
  }
}

TEST(NewtonSchulzTest, ConvergedSetGivesOrthonormalRows) {
  const std::vector<float> in = reference::GaussianVector(24 * 48, 13);
  const reference::Matrix out = reference::AsMatrix(
      Orthogonalized(Config(NsCoefficients::kPolarExpress, 8, NsDType::kFloat32), 24, 48, in), 24,
      48);
  EXPECT_LE((out * out.transpose() - reference::Matrix::Identity(24, 24)).norm(), 1e-4);
}

TEST(NewtonSchulzTest, MoreStepsThanTriplesRepeatTheLast) {
  const std::vector<float> in = reference::GaussianVector(10 * 12, 14);
  ExpectWithin(Config(NsCoefficients::kPolarExpress, 12, NsDType::kFloat32), 10, 12, in, 2e-4);
  ExpectWithin(Config(NsCoefficients::kJordan, 1, NsDType::kFloat32), 10, 12, in, 1e-5);
}

TEST(NewtonSchulzTest, OutputMayBeTheInput) {
  ReferenceGemm gemm;
  for (const auto& [rows, cols] : kShapes) {
    std::vector<float> x = reference::GaussianVector(rows * cols, 15);
    const std::vector<float> expected = Orthogonalized({}, rows, cols, x);
    NewtonSchulz({}, {rows, cols}, x, absl::MakeSpan(x), gemm);
    EXPECT_EQ(x, expected);
  }
}

}  // namespace
}  // namespace kaon::kernels
