// Invariants of Newton-Schulz and its edges; its accuracy is in newton_schulz_accuracy_test.cc.
#include "kernels/orthogonalize/newton_schulz.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "tests/kernels/orthogonalize/newton_schulz_cases.h"

namespace kaon::kernels {
namespace {

double Inner(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * y[i];
  return sum;
}

bool IsFinite(const std::vector<float>& x) {
  for (const float value : x) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

NewtonSchulzConfig WithNormMode(NewtonSchulzConfig config, NormMode mode) {
  config.norm_mode = mode;
  return config;
}

// u v^T / (||u|| ||v||) * size.
std::vector<float> RankOne(int rows, int cols, uint32_t seed) {
  const std::vector<float> u = reference::GaussianVector(rows, seed);
  const std::vector<float> v = reference::GaussianVector(cols, seed + 1);
  std::vector<float> x;
  for (const float a : u) {
    for (const float b : v) x.push_back(a * b);
  }
  return x;
}

// Counts products, by whether they touch the long side.
class CountingGemm final : public Gemm {
 public:
  absl::string_view name() const override { return "counting"; }
  void Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) override {
    if (first.empty()) first.assign(a, a + product.rows * product.inner);
    (product.cols == product.rows && product.inner == product.rows ? square : wide) += 1;
    gemm_.Multiply(product, a, b, c);
  }
  void MultiplyBFloat16(const MatrixProduct&, const uint16_t*, const uint16_t*, float*) override {
    FAIL();
  }

  int square = 0;
  int wide = 0;
  // Left operand of the first product.
  std::vector<float> first;

 private:
  ReferenceGemm gemm_;
};

CountingGemm Count(NsCoefficients set, NsForm form, std::vector<int> restarts) {
  NewtonSchulzConfig config;
  config.coefficients = set;
  config.form = form;
  config.gram_restarts = std::move(restarts);
  CountingGemm gemm;
  OrthogonalizedBy(gemm, config, 6, 10, reference::GaussianVector(6 * 10, 1));
  return gemm;
}

// Edge 1, [N5]: powers of two are exact, so those results have the same bits.
TEST(NewtonSchulzTest, ScaleOfTheInputDoesNotMatter) {
  const std::vector<float> in = reference::GaussianVector(20 * 33, 5);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    const std::vector<float> expected = Orthogonalized(c.config, 20, 33, in);
    const double tolerance[] = {2e-5, 3e-2, 1e-2};
    for (const double scale : {1e-30, 1e-20, 1e-9, 3.0, 1e15, 1e30}) {
      EXPECT_LE(reference::RelativeError(Orthogonalized(c.config, 20, 33, Times(scale, in)),
                                         reference::Widened(expected)),
                tolerance[static_cast<int>(c.config.dtype)])
          << c.Name() << " " << scale;
    }
    for (const double scale : {0x1p-100, 0x1p+100}) {
      EXPECT_EQ(Orthogonalized(c.config, 20, 33, Times(scale, in)), expected) << c.Name();
    }
  }
}

// Transposing the input transposes the result, bit for bit ([N4]).
TEST(NewtonSchulzTest, TransposedInputGivesTheTransposedBits) {
  const std::vector<float> in = reference::GaussianVector(13 * 40, 6);
  const std::vector<float> transposed = Transposed(in, 13, 40);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    EXPECT_EQ(Orthogonalized(c.config, 40, 13, transposed),
              Transposed(Orthogonalized(c.config, 13, 40, in), 13, 40))
        << c.Name();
  }
}

// The iteration uses the matrix itself, or its transpose if the matrix is tall ([N4]).
TEST(NewtonSchulzTest, OnlyTallMatricesAreWorkedOnTransposed) {
  const auto worked_on = [](int rows, int cols, const std::vector<float>& in) {
    CountingGemm gemm;
    OrthogonalizedBy(gemm, {}, rows, cols, in);
    return gemm.first;
  };
  // Norm 4.
  EXPECT_EQ(worked_on(2, 2, {2, 2, 0, 2.8284271f})[2], 0.0f);
  EXPECT_EQ(worked_on(2, 3, {2, 2, 2, 0, 2, 0}), (std::vector<float>{0.5, 0.5, 0.5, 0, 0.5, 0}));
  EXPECT_EQ(worked_on(3, 2, {2, 0, 2, 2, 2, 0}), (std::vector<float>{0.5, 0.5, 0.5, 0, 0.5, 0}));
}

// The transpose of a square matrix gives the transpose of the result, up to rounding ([N4]).
TEST(NewtonSchulzTest, TransposedSquareGivesTheTranspose) {
  const std::vector<float> in = reference::MatrixWithSpectrum(17, 17, 1, 6);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    const double tolerance[] = {2e-5, 1.5e-1, 2e-2};
    EXPECT_LE(reference::RelativeError(
                  Orthogonalized(c.config, 17, 17, Transposed(in, 17, 17)),
                  reference::Widened(Transposed(Orthogonalized(c.config, 17, 17, in), 17, 17))),
              tolerance[static_cast<int>(c.config.dtype)])
        << c.Name();
  }
}

// Negating the input negates the result, bit for bit ([N4]).
TEST(NewtonSchulzTest, NegatedInputGivesTheNegatedBits) {
  const std::vector<float> in = reference::GaussianVector(9 * 14, 7);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    EXPECT_EQ(Times(-1, Orthogonalized(c.config, 9, 14, Times(-1, in))),
              Orthogonalized(c.config, 9, 14, in))
        << c.Name();
  }
}

// A square input uses the standard form ([N7]).
TEST(NewtonSchulzTest, GramOfASquareIsTheStandardForm) {
  const std::vector<float> in = reference::GaussianVector(15 * 15, 8);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    if (c.config.form != NsForm::kGram) continue;
    NewtonSchulzConfig standard = c.config;
    standard.form = NsForm::kStandard;
    EXPECT_EQ(Orthogonalized(c.config, 15, 15, in), Orthogonalized(standard, 15, 15, in))
        << c.Name();
    EXPECT_NE(Orthogonalized(c.config, 9, 25, in), Orthogonalized(standard, 9, 25, in)) << c.Name();
  }
}

// [N7]: with nothing to gather, a stretch of one step is that of the standard form.
TEST(NewtonSchulzTest, GramThatBeginsAnewAfterEveryStepIsTheStandardForm) {
  const std::vector<float> in = reference::GaussianVector(9 * 25, 8);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    if (c.config.form != NsForm::kGram) continue;
    NewtonSchulzConfig anew = c.config;
    anew.gram_restarts.clear();
    for (int done = 1; done < anew.steps; ++done) anew.gram_restarts.push_back(done);
    NewtonSchulzConfig standard = c.config;
    standard.form = NsForm::kStandard;
    EXPECT_EQ(Orthogonalized(anew, 9, 25, in), Orthogonalized(standard, 9, 25, in)) << c.Name();
  }
}

// Counts the products of each form ([N1], [N7]); a cubic skips A A.
TEST(NewtonSchulzTest, FormsTakeTheProductsTheyMust) {
  const CountingGemm standard = Count(NsCoefficients::kJordan, NsForm::kStandard, {});
  EXPECT_EQ(standard.wide, 10);
  EXPECT_EQ(standard.square, 5);
  const CountingGemm cubic = Count(NsCoefficients::kCubic5, NsForm::kStandard, {});
  EXPECT_EQ(cubic.wide, 10);
  EXPECT_EQ(cubic.square, 0);
  const CountingGemm gram = Count(NsCoefficients::kJordan, NsForm::kGram, {2});
  EXPECT_EQ(gram.wide, 4);
  // Z each step; Q but in the first of a stretch; two for R but in the last.
  EXPECT_EQ(gram.square, 5 + 3 + 6);
}

// The result was stored in the storage type, and fp16 is not kept as bf16 ([N6]).
// Edge 36: it is rounded to the storage type where the configuration says so, and is fp32 for the
// caller.
TEST(NewtonSchulzTest, ResultsAreValuesOfTheStorageType) {
  const std::vector<float> in = reference::GaussianVector(11 * 30, 9);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    if (c.config.dtype == NsDType::kFloat32) continue;
    const bool is_bf16 = c.config.dtype == NsDType::kBFloat16;
    bool fits_bf16 = true;
    for (const float x : Orthogonalized(c.config, 11, 30, in)) {
      ASSERT_EQ(x, RoundTo(is_bf16 ? DType::kBFloat16 : DType::kFloat16, x)) << c.Name();
      fits_bf16 = fits_bf16 && x == RoundTo(DType::kBFloat16, x);
    }
    EXPECT_EQ(fits_bf16, is_bf16) << c.Name();
  }
}

// Edge 2: a zero input gives exactly zero ([N8]).
TEST(NewtonSchulzTest, ZeroGivesExactlyZero) {
  const std::vector<float> zero(6 * 4, 0.0f);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    for (const NormMode mode :
         {NormMode::kScaleInvariant, NormMode::kAddEps, NormMode::kClampEps}) {
      EXPECT_EQ(Orthogonalized(WithNormMode(c.config, mode), 6, 4, zero), zero) << c.Name();
    }
  }
  NewtonSchulzConfig tiny;
  tiny.norm_mode = NormMode::kAddEps;
  // 0 in fp32.
  tiny.norm_eps = 1e-60;
  EXPECT_EQ(Orthogonalized(tiny, 6, 4, zero), zero);
}

// The historical norm modes trade accuracy for parity ([N5]). Far below eps, and past fp32's range
// of the norm, the update vanishes; but nothing is ever infinite.
TEST(NewtonSchulzTest, HistoricalNormModesStayFinite) {
  const std::vector<float> in = reference::GaussianVector(8 * 12, 10);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    for (const NormMode mode : {NormMode::kAddEps, NormMode::kClampEps}) {
      for (const double scale : {1e-30, 1e-10, 1e19, 1e30, 5e37}) {
        EXPECT_TRUE(IsFinite(Orthogonalized(WithNormMode(c.config, mode), 8, 12, Times(scale, in))))
            << c.Name() << " " << scale;
      }
      const std::vector<float> out =
          Orthogonalized(WithNormMode(c.config, mode), 8, 12, Times(1e-30, in));
      EXPECT_LT(std::sqrt(Inner(out, out)), 1e-15) << c.Name();
    }
  }
}

TEST(NewtonSchulzTest, EmptyMatrixIsLeftAlone) {
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    EXPECT_TRUE(Orthogonalized(c.config, 0, 4, {}).empty());
    EXPECT_TRUE(Orthogonalized(c.config, 4, 0, {}).empty());
  }
}

// Edge 34: the result is v /
// v
// times the scalar polynomial of 1 ([N8]). In half precision the polynomial is a difference of
// rounded numbers, so only its band is certain.
TEST(NewtonSchulzTest, RowsColumnsAndSingleElements) {
  constexpr int kVectors[][2] = {{1, 9}, {9, 1}, {1, 1}, {1, 1000}, {2, 1}};
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    const double expected = reference::Orthogonalized(c.exact, reference::Matrix::Ones(1, 1))(0, 0);
    for (const auto& [rows, cols] : kVectors) {
      const std::vector<float> in = reference::GaussianVector(rows * cols, 8);
      const std::vector<float> out = Orthogonalized(c.config, rows, cols, in);
      const double size = std::sqrt(Inner(out, out));
      const double along = Inner(in, out) / std::sqrt(Inner(in, in));
      const bool is_fp32 = c.config.dtype == NsDType::kFloat32;
      EXPECT_NEAR(along, size, is_fp32 ? 1e-6 : 1e-4) << c.Name() << " " << rows << "x" << cols;
      EXPECT_NEAR(along, expected, is_fp32 ? 5e-5 : 0.25) << c.Name() << " " << rows << "x" << cols;
    }
    EXPECT_LT(Orthogonalized(c.config, 1, 1, {-1e-20f})[0], -0.6f) << c.Name();
  }
}

// Edge 34, [N8]: one singular value near 1. The null directions stay 0 in fp32; rounding makes them
// a little more than null, and every set enlarges that.
TEST(NewtonSchulzTest, RankOneKeepsItsDirection) {
  const std::vector<float> in = RankOne(20, 30, 10);
  const double norm = std::sqrt(Inner(in, in));
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    const std::vector<float> out = Orthogonalized(c.config, 20, 30, in);
    const double along = Inner(in, out) / norm;
    EXPECT_GT(along, 0.66) << c.Name();
    EXPECT_LT(along, 1.2) << c.Name();
    if (c.config.dtype == NsDType::kFloat32) {
      EXPECT_NEAR(std::sqrt(Inner(out, out)), along, 1e-3) << c.Name();
    }
  }
}

// Edge 34: over twelve decades only the invariants hold.
TEST(NewtonSchulzTest, ConditionNumber1e12StaysBoundedAndAligned) {
  const std::vector<float> in = reference::MatrixWithSpectrum(24, 33, 12, 12);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    const std::vector<float> out = Orthogonalized(c.config, 24, 33, in);
    ASSERT_TRUE(IsFinite(out)) << c.Name();
    EXPECT_GT(Inner(in, out), 0) << c.Name();
    EXPECT_LE(std::sqrt(Inner(out, out)), 1.4 * std::sqrt(24.0)) << c.Name();
  }
}

// Edge 50: never a step uphill.
TEST(NewtonSchulzTest, UpdateIsAlignedWithTheDirection) {
  std::vector<float> nearly_rank_one = RankOne(24, 32, 20);
  const std::vector<float> noise = reference::GaussianVector(24 * 32, 21);
  for (size_t i = 0; i < noise.size(); ++i) nearly_rank_one[i] += 1e-3f * noise[i];
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    for (const double decades : {0.0, 4.0}) {
      const std::vector<float> in = reference::MatrixWithSpectrum(24, 32, decades, 12);
      EXPECT_GT(Inner(in, Orthogonalized(c.config, 24, 32, in)), 0) << c.Name();
    }
    EXPECT_GT(Inner(nearly_rank_one, Orthogonalized(c.config, 24, 32, nearly_rank_one)), 0)
        << c.Name();
    for (uint32_t seed = 0; seed < 50; ++seed) {
      const int n = 1 + static_cast<int>(seed) * 7;
      const std::vector<float> row = reference::GaussianVector(n, seed);
      ASSERT_GT(Inner(row, Orthogonalized(c.config, 1, n, row)), 0) << c.Name() << " 1x" << n;
    }
  }
}

// Edge 50: why `aol` and half precision without room for rounding are refused.
TEST(NewtonSchulzTest, RefusedSetsDoStepUphillOrRunAway) {
  const auto custom = [](const std::string& set, int steps) {
    NewtonSchulzConfig config;
    config.coefficients = NsCoefficients::kCustom;
    for (const auto& [a, b, c2] : reference::TriplesOfSet(set, steps)) {
      config.custom.push_back(
          {static_cast<float>(a), static_cast<float>(b), static_cast<float>(c2)});
    }
    config.steps = steps;
    return config;
  };
  const NewtonSchulzConfig aol = custom("aol", 4);
  const std::vector<float> row = reference::GaussianVector(40, 22);
  EXPECT_LT(Inner(row, Orthogonalized(aol, 1, 40, row)), 0);
  EXPECT_FALSE(ValidateNewtonSchulz(aol).ok());

  // The custom copy lacks the named set's division by 1.01.
  NewtonSchulzConfig cans = custom("cans", 8);
  cans.dtype = NsDType::kBFloat16;
  int runaways = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> in = reference::GaussianVector(30, seed);
    if (!IsFinite(Orthogonalized(cans, 1, 30, in))) ++runaways;
  }
  EXPECT_GT(runaways, 0);
  EXPECT_FALSE(ValidateNewtonSchulz(cans).ok());
}

// Edges 27 and 34: sizes that are no multiple of anything, against the neighbour sizes padded with
// zeros.
TEST(NewtonSchulzTest, RowsOfZerosStayZeroAndChangeNothing) {
  const std::vector<float> in = reference::GaussianVector(7 * 23, 23);
  std::vector<float> padded = in;
  padded.resize(9 * 23, 0.0f);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    std::vector<float> expected = Orthogonalized(c.config, 7, 23, in);
    expected.resize(9 * 23, 0.0f);
    const double tolerance[] = {2e-5, 3e-2, 1e-2};
    EXPECT_LE(reference::RelativeError(Orthogonalized(c.config, 9, 23, padded),
                                       reference::Widened(expected)),
              tolerance[static_cast<int>(c.config.dtype)])
        << c.Name();
  }
}

TEST(NewtonSchulzTest, OutputMayBeTheInput) {
  ReferenceGemm gemm;
  constexpr int kShapes[][2] = {{16, 16}, {31, 77}, {77, 31}};
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    for (const auto& [rows, cols] : kShapes) {
      std::vector<float> x = reference::GaussianVector(rows * cols, 15);
      const std::vector<float> expected = Orthogonalized(c.config, rows, cols, x);
      OrthogonalizeInto(c.config, {rows, cols}, absl::MakeSpan(x), gemm, absl::MakeSpan(x));
      EXPECT_EQ(x, expected) << c.Name();
    }
  }
}

}  // namespace
}  // namespace kaon::kernels
