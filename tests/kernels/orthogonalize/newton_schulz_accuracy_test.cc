// [N9]: every set, storage type and form of Newton-Schulz against float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/SVD>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/gemm/amx_gemm.h"
#include "kernels/gemm/amx_tiles.h"
#include "kernels/gemm/reference_gemm.h"
#include "tests/kernels/orthogonalize/newton_schulz_cases.h"

namespace kaon::kernels {
namespace {

constexpr int kShapes[][2] = {{16, 16}, {31, 77}, {77, 31}, {48, 80}};

// Relative to float64 without rounding.
double FlatTolerance(const NewtonSchulzTestCase& c) {
  if (c.config.dtype == NsDType::kBFloat16) return 4e-2;
  if (c.config.dtype == NsDType::kFloat16) return 3e-3;
  return c.config.form == NsForm::kGram ? 1e-3 : 1e-5;
}

double DecadesTolerance(const NewtonSchulzTestCase& c) {
  const bool longer = c.config.steps > 5;
  if (c.config.dtype == NsDType::kBFloat16) return longer ? 5e-1 : 2e-1;
  if (c.config.dtype == NsDType::kFloat16) return longer ? 8e-2 : 3e-2;
  if (c.config.form == NsForm::kGram) return 1e-3;
  return longer ? 2e-4 : 5e-5;
}

struct Input {
  int rows;
  int cols;
  std::vector<float> values;

  reference::Matrix Wide() const { return reference::AsMatrix(values, rows, cols); }
};

std::vector<Input> Inputs(double decades, uint32_t seed) {
  std::vector<Input> inputs;
  for (const auto& [rows, cols] : kShapes) {
    inputs.push_back({rows, cols, reference::MatrixWithSpectrum(rows, cols, decades, seed)});
  }
  if (decades == 0) inputs.push_back({31, 77, reference::GaussianVector(31 * 77, seed)});
  return inputs;
}

// The figures of [N9] were measured on jordan, you and polar_express. Other sets enlarge rounding
// more. There the bound is the error of rounding alone in float64, if that is larger.
void ExpectWithin(const NewtonSchulzTestCase& c, const Input& in, double tolerance, Gemm& gemm) {
  const std::vector<float> out = OrthogonalizedBy(gemm, c.config, in.rows, in.cols, in.values);
  const reference::Matrix exact = reference::Orthogonalized(c.exact, in.Wide());
  const reference::Matrix rounded = reference::Orthogonalized(c.emulator, in.Wide());
  if (c.config.dtype != NsDType::kFloat32) {
    tolerance = std::max(tolerance, 1.25 * (rounded - exact).norm() / exact.norm());
  }
  EXPECT_LE(reference::RelativeError(out, exact), tolerance)
      << c.Name() << " " << in.rows << "x" << in.cols;
}

void ExpectWithin(const NewtonSchulzTestCase& c, const Input& in, double tolerance) {
  ReferenceGemm plain;
  ExpectWithin(c, in, tolerance, plain);
}

TEST(NewtonSchulzAccuracyTest, FlatAndGaussianSpectraAgreeWithFloat64) {
  const std::vector<Input> inputs = Inputs(0, 1);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    for (const Input& in : inputs) ExpectWithin(c, in, FlatTolerance(c));
  }
}

TEST(NewtonSchulzAccuracyTest, SpectraOverFourDecadesAgreeWithFloat64) {
  const std::vector<Input> inputs = Inputs(4, 3);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    for (const Input& in : inputs) ExpectWithin(c, in, DecadesTolerance(c));
  }
}

double MedianErrorAgainstEmulator(const NewtonSchulzTestCase& c, const std::vector<Input>& inputs,
                                  Gemm& gemm) {
  std::vector<double> errors;
  for (const Input& in : inputs) {
    errors.push_back(
        reference::RelativeError(OrthogonalizedBy(gemm, c.config, in.rows, in.cols, in.values),
                                 reference::Orthogonalized(c.emulator, in.Wide())));
  }
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() / 2];
}

// The wide tolerances of half precision would hide a rounding in the wrong place. A sum that falls
// the other way at a tie is enlarged by the steps after it, in few matrices: hence the median.
void ExpectRoundedWhereStored(const NewtonSchulzTestCase& c, Gemm& gemm) {
  std::vector<Input> flat;
  std::vector<Input> decades;
  for (const uint32_t seed : {4u, 5u, 6u}) {
    for (const Input& in : Inputs(0, seed)) flat.push_back(in);
    for (const Input& in : Inputs(4, seed)) decades.push_back(in);
  }
  EXPECT_LE(MedianErrorAgainstEmulator(c, flat, gemm), 1e-2) << c.Name();
  EXPECT_LE(MedianErrorAgainstEmulator(c, decades, gemm), 5e-2) << c.Name();
}

TEST(NewtonSchulzAccuracyTest, HalfPrecisionRoundsExactlyWhereItStores) {
  ReferenceGemm plain;
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    if (c.config.dtype != NsDType::kFloat32) ExpectRoundedWhereStored(c, plain);
  }
}

// The restarts of performance.md section 2.1 for bf16, whose products are mirrored.
TEST(NewtonSchulzAccuracyTest, GramFormWithTwoRestartsStaysWithinTheTolerances) {
  ThreadPool pool(2);
  std::unique_ptr<Gemm> gemm = std::make_unique<ReferenceGemm>();
  if (HasAmx()) gemm = std::make_unique<AmxGemm>(std::move(gemm), pool);
  for (const NewtonSchulzCoefficientSet& set : NewtonSchulzCoefficientSets()) {
    NewtonSchulzTestCase c = TestCase(set, 5, NsDType::kBFloat16, NsForm::kGram);
    c.config.gram_restarts = c.emulator.gram_restarts = {2, 3};
    if (!ValidateNewtonSchulz(c.config).ok()) continue;
    for (const Input& in : Inputs(0, 1)) ExpectWithin(c, in, FlatTolerance(c), *gemm);
    for (const Input& in : Inputs(4, 3)) ExpectWithin(c, in, DecadesTolerance(c), *gemm);
  }
}

// Mean over some matrices of the error in bf16 with these restarts, in standard form without.
double MeanErrorInBFloat16(const NewtonSchulzCoefficientSet& set, double decades,
                           const std::vector<int>& restarts) {
  ReferenceGemm gemm;
  NewtonSchulzTestCase c =
      TestCase(set, 5, NsDType::kBFloat16, restarts.empty() ? NsForm::kStandard : NsForm::kGram);
  c.config.gram_restarts = restarts;
  double sum = 0;
  for (const uint32_t seed : {1u, 2u, 3u}) {
    for (const auto& [rows, cols] : {std::pair(96, 384), std::pair(128, 256)}) {
      const std::vector<float> in = reference::MatrixWithSpectrum(rows, cols, decades, seed);
      sum += reference::RelativeError(
          OrthogonalizedBy(gemm, c.config, rows, cols, in),
          reference::Orthogonalized(c.exact, reference::AsMatrix(in, rows, cols)));
    }
  }
  return sum / 6;
}

// A chosen Gram form restarts twice (ADR 0024); here the singular values span decades.
TEST(NewtonSchulzAccuracyTest, GramFormWithTwoRestartsIsAsAccurateAsTheStandardForm) {
  for (const NewtonSchulzCoefficientSet& set : NewtonSchulzCoefficientSets()) {
    const NewtonSchulzTestCase c = TestCase(set, 5, NsDType::kBFloat16, NsForm::kStandard);
    if (!ValidateNewtonSchulz(c.config).ok()) continue;
    for (const double decades : {2.0, 4.0}) {
      // The ratio is 1.07 at most. With the default restart {2} it is 1.3 .. 2.9.
      EXPECT_LE(MeanErrorInBFloat16(set, decades, {2, 3}),
                1.1 * MeanErrorInBFloat16(set, decades, {}))
          << c.Name() << " over " << decades << " decades";
    }
  }
}

TEST(NewtonSchulzAccuracyTest, AmxTilesAgreeWithFloat64AndRoundWhereTheyStore) {
  if (!HasAmx()) GTEST_SKIP() << "this machine has no AMX tiles";
  ThreadPool pool(2);
  AmxGemm tiles(std::make_unique<ReferenceGemm>(), pool);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    if (c.config.dtype != NsDType::kBFloat16) continue;
    for (const Input& in : Inputs(0, 1)) ExpectWithin(c, in, FlatTolerance(c), tiles);
    for (const Input& in : Inputs(4, 3)) ExpectWithin(c, in, DecadesTolerance(c), tiles);
    ExpectRoundedWhereStored(c, tiles);
  }
}

// All singular values of an input end in the set's band ([N2]).
TEST(NewtonSchulzAccuracyTest, SingularValuesEndInTheBandOfTheSet) {
  const std::vector<float> in = reference::MatrixWithSpectrum(16, 24, 1, 7);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    const auto singular_values = [](const reference::Matrix& x) {
      return Eigen::VectorXd(Eigen::JacobiSVD<Eigen::MatrixXd>(x).singularValues());
    };
    const Eigen::VectorXd out =
        singular_values(reference::AsMatrix(Orthogonalized(c.config, 16, 24, in), 16, 24));
    const Eigen::VectorXd expected =
        singular_values(reference::Orthogonalized(c.exact, reference::AsMatrix(in, 16, 24)));
    const double room = c.config.dtype == NsDType::kFloat32 ? 1e-4 : 0.1;
    EXPECT_GE(out.minCoeff(), expected.minCoeff() - room) << c.Name();
    EXPECT_LE(out.maxCoeff(), expected.maxCoeff() + room) << c.Name();
    EXPECT_GE(expected.minCoeff(), 0.68);
    EXPECT_LE(expected.maxCoeff(), 1.301);
  }
}

TEST(NewtonSchulzAccuracyTest, ConvergedSetsGiveOrthonormalRows) {
  const std::vector<float> in = reference::GaussianVector(24 * 48, 13);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    if (c.config.steps < 8) continue;
    const reference::Matrix out = reference::AsMatrix(Orthogonalized(c.config, 24, 48, in), 24, 48);
    // deepseek_v4 ends up to 1.0005.
    const double tolerance[] = {c.set == "deepseek_v4" ? 5e-3 : 1e-4, 1e-1, 1e-2};
    EXPECT_LE((out * out.transpose() - reference::Matrix::Identity(24, 24)).norm(),
              tolerance[static_cast<int>(c.config.dtype)])
        << c.Name();
  }
}

// More steps than triples cycle or repeat the last one, as the set says ([N3]).
TEST(NewtonSchulzAccuracyTest, MoreStepsThanTriplesFollowTheSetsRule) {
  const Input in = {10, 12, reference::GaussianVector(10 * 12, 14)};
  for (const NewtonSchulzCoefficientSet& set : NewtonSchulzCoefficientSets()) {
    if (set.repeat == NsRepeat::kFixed) continue;
    for (const int steps : {1, 2, 7, 12}) {
      ExpectWithin(TestCase(set, steps, NsDType::kFloat32, NsForm::kStandard), in, 2e-4);
    }
  }
}

TEST(NewtonSchulzAccuracyTest, CustomTriplesAreIterated) {
  NewtonSchulzConfig config;
  config.coefficients = NsCoefficients::kCustom;
  config.custom = {{3, -3.2f, 1.2f}, {1.5f, -0.5f, 0}};
  config.custom_repeat = NsRepeat::kCycle;
  config.steps = 3;
  reference::NewtonSchulzCase exact;
  exact.triples = {{3, -3.2, 1.2}, {1.5, -0.5, 0}, {3, -3.2, 1.2}};
  const std::vector<float> in = reference::GaussianVector(9 * 20, 15);
  EXPECT_LE(
      reference::RelativeError(Orthogonalized(config, 9, 20, in),
                               reference::Orthogonalized(exact, reference::AsMatrix(in, 9, 20))),
      1e-5);
}

// [N5], for parity with other systems: eps and the safety factor as they write them.
TEST(NewtonSchulzAccuracyTest, HistoricalNormModesAgreeWithFloat64AtEveryScale) {
  for (const NsCoefficients id : {NsCoefficients::kJordan, NsCoefficients::kPolarExpress5S102}) {
    for (const double scale : {1e-12, 1e-9, 1e-7, 1.0, 1e10}) {
      const Input in = {12, 20, Times(scale, reference::GaussianVector(12 * 20, 16))};
      NewtonSchulzTestCase c = TestCase(NewtonSchulzCoefficientSets()[static_cast<int>(id)], 5,
                                        NsDType::kFloat32, NsForm::kStandard);
      c.config.norm_eps = 3e-7;
      c.config.norm_mode = NormMode::kAddEps;
      c.exact.add_eps = 3e-7;
      ExpectWithin(c, in, 1e-5);
      c.config.norm_mode = NormMode::kClampEps;
      c.exact.add_eps = 0;
      c.exact.clamp_eps = 3e-7;
      ExpectWithin(c, in, 1e-5);
    }
  }
}

// Edge 12: normalising precedes the cast, so values beyond fp16 stay finite ([N6]).
TEST(NewtonSchulzAccuracyTest, LossScaledInputsStayFiniteInFloat16) {
  const std::vector<float> in = reference::GaussianVector(31 * 77, 17);
  for (const NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
    if (c.config.dtype != NsDType::kFloat16) continue;
    for (const double scale : {1e4, 65504.0, 1e6, 1e10, 1e15}) {
      ExpectWithin(c, {31, 77, Times(scale, in)}, FlatTolerance(c));
    }
  }
}

}  // namespace
}  // namespace kaon::kernels
