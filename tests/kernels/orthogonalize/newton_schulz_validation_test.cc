#include "kernels/orthogonalize/newton_schulz_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/orthogonalize/coefficients.h"
#include "tests/kernels/reference/float64_newton_schulz.h"

namespace kaon::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const float kNan = std::nanf("");
const float kInfinity = std::numeric_limits<float>::infinity();

void ExpectRefused(const NewtonSchulzConfig& config, const std::string& field,
                   const std::string& value, const std::string& range) {
  const absl::Status status = ValidateNewtonSchulz(config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field << " " << value;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(field), HasSubstr(value), HasSubstr("must"), HasSubstr(range)));
}

NewtonSchulzConfig Custom(std::vector<NewtonSchulzTriple> triples, int steps) {
  NewtonSchulzConfig config;
  config.coefficients = NsCoefficients::kCustom;
  config.custom = std::move(triples);
  config.steps = steps;
  return config;
}

NewtonSchulzConfig CustomCopy(const std::string& set, int steps) {
  std::vector<NewtonSchulzTriple> triples;
  for (const auto& [a, b, c2] : reference::TriplesOfSet(set, steps)) {
    triples.push_back({static_cast<float>(a), static_cast<float>(b), static_cast<float>(c2)});
  }
  return Custom(triples, steps);
}

NewtonSchulzConfig Gram(int steps, std::vector<int> restarts, NsDType dtype = NsDType::kFloat32) {
  NewtonSchulzConfig config;
  config.steps = steps;
  config.form = NsForm::kGram;
  config.gram_restarts = std::move(restarts);
  config.dtype = dtype;
  return config;
}

TEST(NewtonSchulzValidationTest, DefaultsAreValid) {
  EXPECT_EQ(ValidateNewtonSchulz({}), absl::OkStatus());
}

// A count of steps is valid from 1 to 99 ([N3]).
TEST(NewtonSchulzValidationTest, StepsAreFromOneToNinetyNine) {
  NewtonSchulzConfig config;
  for (const int bad : {-1, 0, 100}) {
    config.steps = bad;
    ExpectRefused(config, "ns_steps", "is " + std::to_string(bad), "[1, 99]");
  }
  for (const int good : {1, 99}) {
    config.steps = good;
    EXPECT_EQ(ValidateNewtonSchulz(config), absl::OkStatus());
  }
}

// Fixed sets reject other counts than their own ([N3]).
TEST(NewtonSchulzValidationTest, FixedSetsRefuseOtherCounts) {
  for (const NewtonSchulzCoefficientSet& set : NewtonSchulzCoefficientSets()) {
    NewtonSchulzConfig config;
    config.coefficients = set.id;
    const int count = static_cast<int>(set.triples.size());
    config.steps = count;
    EXPECT_EQ(ValidateNewtonSchulz(config), absl::OkStatus()) << std::string(set.name);
    for (const int other : {count - 1, count + 1}) {
      config.steps = other;
      if (set.repeat == NsRepeat::kFixed) {
        ExpectRefused(config, std::string(set.name), "ns_steps: is " + std::to_string(other),
                      "be " + std::to_string(count));
      } else if (other > 0) {
        EXPECT_EQ(ValidateNewtonSchulz(config), absl::OkStatus()) << std::string(set.name);
      }
    }
  }
}

TEST(NewtonSchulzValidationTest, CustomFixedSetsHaveOneTriplePerStep) {
  NewtonSchulzConfig config = Custom({{1.5f, -0.5f, 0}, {1.5f, -0.5f, 0}}, 3);
  config.custom_repeat = NsRepeat::kFixed;
  ExpectRefused(config, "ns_steps", "is 3", "be 2");
  config.steps = 2;
  EXPECT_EQ(ValidateNewtonSchulz(config), absl::OkStatus());
}

TEST(NewtonSchulzValidationTest, CustomHasOneToNinetyNineTriples) {
  const NewtonSchulzTriple cubic{1.5f, -0.5f, 0};
  ExpectRefused(Custom({}, 5), "newton_schulz.custom", "has 0", "1 .. 99");
  ExpectRefused(Custom(std::vector<NewtonSchulzTriple>(100, cubic), 5), "newton_schulz.custom",
                "has 100", "1 .. 99");
  EXPECT_EQ(ValidateNewtonSchulz(Custom(std::vector<NewtonSchulzTriple>(99, cubic), 99)),
            absl::OkStatus());
}

TEST(NewtonSchulzValidationTest, CustomTriplesAreFiniteWithPositiveA) {
  for (const float bad : {0.0f, -1.0f, kNan, kInfinity}) {
    ExpectRefused(Custom({{1.5f, -0.5f, 0}, {bad, 0, 0}}, 5), "newton_schulz.custom[1].a", "is ",
                  "> 0");
  }
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    ExpectRefused(Custom({{1.5f, bad, 0}}, 5), "newton_schulz.custom[0]", "b is ", "finite");
    ExpectRefused(Custom({{1.5f, 0, bad}}, 5), "newton_schulz.custom[0]", "c2 is ", "finite");
  }
}

// Edge 51: an option that maps to nothing is an error.
TEST(NewtonSchulzValidationTest, OptionsOfAnotherKindAreRefused) {
  NewtonSchulzConfig config;
  config.custom = {{1.5f, -0.5f, 0}};
  ExpectRefused(config, "newton_schulz.custom", "has 1", "custom");
  config = Gram(5, {2});
  config.form = NsForm::kStandard;
  ExpectRefused(config, "newton_schulz.gram_restarts", "has 1", "gram");
}

// Edge 50.
TEST(NewtonSchulzValidationTest, CustomSetsThatStepUphillAreRefusedByTheirSingularValue) {
  for (const int steps : {1, 2, 3, 4, 5, 8}) {
    NewtonSchulzConfig aol = CustomCopy("aol", 4);
    aol.custom_repeat = NsRepeat::kCycle;
    aol.steps = steps;
    ExpectRefused(aol, "newton_schulz.custom", "step 1 of " + std::to_string(steps), "(0, 1]");
  }
  // The aol set is negative from the singular value 0.884 up ([N2]).
  EXPECT_THAT(std::string(ValidateNewtonSchulz(CustomCopy("aol", 1)).message()),
              HasSubstr("singular value 0.88"));
  // 2 s - 1.9 s^3 rises to 0.79. The second step is negative above 0.707, to which the first step
  // maps 0.428.
  const absl::Status status = ValidateNewtonSchulz(Custom({{2, -1.9f, 0}, {2, -4, 0}}, 2));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step 2 of 2"), HasSubstr("singular value 0.428")));
}

// Edge 50: a dip that is narrower than any grid. u = s^2 between 0.5 -+ 1e-4 is negative.
TEST(NewtonSchulzValidationTest, NarrowDipsAreFound) {
  ExpectRefused(Custom({{0.2499f, -1, 1}}, 1), "newton_schulz.custom", "step 1 of 1", "(0, 1]");
  EXPECT_EQ(ValidateNewtonSchulz(Custom({{0.2501f, -1, 1}}, 1)), absl::OkStatus());
}

// The first step ends at 2.094 exactly, below the zero of the second one at 2.113. With the worst
// rounding of B and A in bf16 it ends above ([N2]). fp32 has room for it.
TEST(NewtonSchulzValidationTest, TheEndOfAStepHasItsRoundingsToo) {
  NewtonSchulzConfig config = Custom({{8.287f, -23.596f, 17.3f}, {1, -0.224f, 0}}, 2);
  EXPECT_EQ(ValidateNewtonSchulz(config), absl::OkStatus());
  config.dtype = NsDType::kBFloat16;
  ExpectRefused(config, "newton_schulz.custom", "bfloat16, step 2 of 2", "(0, 1]");
  // A named set is judged by measurements, not by intervals.
  config = CustomCopy("polar_express", 8);
  config.dtype = NsDType::kBFloat16;
  EXPECT_FALSE(ValidateNewtonSchulz(config).ok());
  config = {};
  config.coefficients = NsCoefficients::kPolarExpress;
  config.steps = 8;
  config.dtype = NsDType::kBFloat16;
  EXPECT_EQ(ValidateNewtonSchulz(config), absl::OkStatus());
}

TEST(NewtonSchulzValidationTest, CustomSetsThatRunAwayAreRefused) {
  ExpectRefused(Custom({{4, 0, 0}}, 2), "newton_schulz.custom", "to 16", "<= 10");
  ExpectRefused(Custom({{1, 2, 0}}, 99), "newton_schulz.custom", "step 2 of 99", "<= 10");
  EXPECT_EQ(ValidateNewtonSchulz(Custom({{4, 0, 0}}, 1)), absl::OkStatus());
}

// Every named set stays positive in fp32 at any valid count, even written as a custom set.
TEST(NewtonSchulzValidationTest, NamedSetsArePositiveAtEveryCount) {
  for (const NewtonSchulzCoefficientSet& set : NewtonSchulzCoefficientSets()) {
    if (set.safety_factor != 1) continue;
    const int count = static_cast<int>(set.triples.size());
    for (int steps = 1; steps <= (set.repeat == NsRepeat::kFixed ? count : 99); ++steps) {
      EXPECT_EQ(ValidateNewtonSchulz(CustomCopy(std::string(set.name), steps)), absl::OkStatus())
          << std::string(set.name) << " " << steps;
    }
  }
}

// Edge 50: sets without room for rounding are rejected ([N6]). Measured: cubic5 steps uphill on
// rows in bf16. The first polynomial of cans nearly touches zero at its largest value, so cans ends
// in infinity in half precision.
TEST(NewtonSchulzValidationTest, SetsWithoutRoomForRoundingAreRefusedInHalfPrecision) {
  for (const NewtonSchulzCoefficientSet& set : NewtonSchulzCoefficientSets()) {
    NewtonSchulzConfig config;
    config.coefficients = set.id;
    config.steps = static_cast<int>(set.triples.size());
    const bool is_cans = set.id == NsCoefficients::kCans;
    const bool is_cubic = set.id == NsCoefficients::kCubic5;
    config.dtype = NsDType::kBFloat16;
    EXPECT_EQ(ValidateNewtonSchulz(config).ok(), !is_cans && !is_cubic) << std::string(set.name);
    config.dtype = NsDType::kFloat16;
    EXPECT_EQ(ValidateNewtonSchulz(config).ok(), !is_cans) << std::string(set.name);
    if (is_cans) ExpectRefused(config, "ns_coefficients: is cans", "float16", "(0, 1]");
  }
  // The paper's triples without the division by 1.01, and `cans` without its own: from 1 + 1e-4
  // they run away in any dtype.
  NewtonSchulzConfig undivided = Custom({{8.287212f, -23.595887f, 17.300388f},
                                         {4.107059f, -2.9478499f, 0.5448431f},
                                         {3.9486909f, -2.9089021f, 0.5518192f},
                                         {3.3184197f, -2.488488f, 0.510049f},
                                         {2.300652f, -1.668904f, 0.4188073f}},
                                        5);
  ExpectRefused(undivided, "newton_schulz.custom", "float32", "<= 10");
  ExpectRefused(CustomCopy("cans", 5), "newton_schulz.custom", "float32", "<= 10");
  undivided.dtype = NsDType::kBFloat16;
  ExpectRefused(undivided, "newton_schulz.custom", "bfloat16", "<= 10");
}

// A norm mode that uses an eps needs a positive one ([N5]).
TEST(NewtonSchulzValidationTest, NormEpsIsPositiveWhereItIsUsed) {
  NewtonSchulzConfig config;
  for (const double bad : {0.0, -1e-7, std::nan(""), HUGE_VAL}) {
    config.norm_eps = bad;
    config.norm_mode = NormMode::kScaleInvariant;
    EXPECT_EQ(ValidateNewtonSchulz(config), absl::OkStatus());
    for (const NormMode mode : {NormMode::kAddEps, NormMode::kClampEps}) {
      config.norm_mode = mode;
      ExpectRefused(config, "newton_schulz.norm_eps", "is ", "> 0");
    }
  }
}

// Gram restarts ascend and lie below the number of steps ([N7]).
TEST(NewtonSchulzValidationTest, GramRestartsAscendBelowTheSteps) {
  ExpectRefused(Gram(5, {0}), "gram_restarts[0]", "is 0", "1 .. ns_steps - 1 = 4");
  ExpectRefused(Gram(5, {5}), "gram_restarts[0]", "is 5", "1 .. ns_steps - 1 = 4");
  ExpectRefused(Gram(5, {2, 2}), "gram_restarts[1]", "is 2", "ascending");
  ExpectRefused(Gram(5, {3, 1}), "gram_restarts[1]", "is 1", "ascending");
  ExpectRefused(Gram(1, {1}), "gram_restarts[0]", "is 1", "= 0");
  EXPECT_EQ(ValidateNewtonSchulz(Gram(1, {})), absl::OkStatus());
  EXPECT_EQ(ValidateNewtonSchulz(Gram(5, {1, 2, 3, 4})), absl::OkStatus());
}

// Edge 44: the Gram form needs more than one restart for more than five steps ([N7]).
TEST(NewtonSchulzValidationTest, GramWithMoreThanFiveStepsNeedsMoreThanOneRestart) {
  for (const NsDType dtype : {NsDType::kFloat32, NsDType::kBFloat16, NsDType::kFloat16}) {
    EXPECT_EQ(ValidateNewtonSchulz(Gram(5, {2}, dtype)), absl::OkStatus());
    for (const int steps : {6, 8, 99}) {
      ExpectRefused(Gram(steps, {2}, dtype), "gram_restarts", "has 1", ">= 2");
      ExpectRefused(Gram(steps, {}, dtype), "gram_restarts", "has 0", ">= 2");
    }
    EXPECT_EQ(ValidateNewtonSchulz(Gram(8, {2, 4, 6}, dtype)), absl::OkStatus());
  }
}

// Edge 44: two restarts in the wrong places diverge as one does (measured: 1e36 in bf16).
TEST(NewtonSchulzValidationTest, GramStretchesAreShortEnoughForTheStorageType) {
  ExpectRefused(Gram(8, {1, 2}), "gram_restarts", "6 steps after step 2", "<= 4");
  ExpectRefused(Gram(99, {2, 4}), "gram_restarts", "95 steps", "<= 4");
  EXPECT_EQ(ValidateNewtonSchulz(Gram(8, {2, 4})), absl::OkStatus());
  EXPECT_EQ(ValidateNewtonSchulz(Gram(5, {4})), absl::OkStatus());
  for (const NsDType dtype : {NsDType::kBFloat16, NsDType::kFloat16}) {
    ExpectRefused(Gram(8, {3, 6}, dtype), "gram_restarts", "3 steps after step 0", "<= 2");
    ExpectRefused(Gram(8, {2, 4}, dtype), "gram_restarts", "4 steps after step 4", "<= 2");
    ExpectRefused(Gram(10, {2, 5, 7}, dtype), "gram_restarts", "3 steps after step 2", "<= 2");
    ExpectRefused(Gram(5, {}, dtype), "gram_restarts", "5 steps after step 0", "<= 2");
    ExpectRefused(Gram(5, {4}, dtype), "gram_restarts", "4 steps", "<= 2");
    EXPECT_EQ(ValidateNewtonSchulz(Gram(2, {}, dtype)), absl::OkStatus());
    EXPECT_EQ(ValidateNewtonSchulz(Gram(4, {2}, dtype)), absl::OkStatus());
  }
}

TEST(NewtonSchulzValidationTest, ValuesThatAreNoEnumeratorsAreRefused) {
  NewtonSchulzConfig config;
  config.coefficients = static_cast<NsCoefficients>(-1);
  ExpectRefused(config, "ns_coefficients", "-1", "[0, 9]");
  config = {};
  config.custom_repeat = static_cast<NsRepeat>(3);
  ExpectRefused(config, "newton_schulz.custom_repeat", "3", "[0, 2]");
  config = {};
  config.dtype = static_cast<NsDType>(3);
  ExpectRefused(config, "ns_dtype", "3", "[0, 2]");
  config = {};
  config.norm_mode = static_cast<NormMode>(-1);
  ExpectRefused(config, "newton_schulz.norm_mode", "-1", "[0, 2]");
  config = {};
  config.form = static_cast<NsForm>(2);
  ExpectRefused(config, "newton_schulz.form", "2", "[0, 1]");
}

}  // namespace
}  // namespace kaon::kernels
