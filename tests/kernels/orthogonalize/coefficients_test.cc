#include "kernels/orthogonalize/coefficients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/kernels/reference/float64_newton_schulz.h"

namespace kaon::kernels {
namespace {

NewtonSchulzCoefficientSet SetOf(NsCoefficients id) {
  NewtonSchulzConfig config;
  config.coefficients = id;
  return FindCoefficientSet(config).value();
}

double Iterated(const NewtonSchulzCoefficientSet& set, int steps, double s) {
  s /= set.safety_factor;
  for (int step = 0; step < steps; ++step) {
    const NewtonSchulzTriple t = TripleOfStep(set, step);
    s = t.a * s + t.b * s * s * s + t.c2 * s * s * s * s * s;
  }
  return s;
}

void ExpectBand(NsCoefficients id, int steps, double low, double high) {
  const NewtonSchulzCoefficientSet set = SetOf(id);
  double least = 10;
  double most = 0;
  for (int i = 0; i <= 9900; ++i) {
    const double s = Iterated(set, steps, 0.01 + i * 1e-4);
    least = std::min(least, s);
    most = std::max(most, s);
  }
  EXPECT_NEAR(least, low, 1e-3) << std::string(set.name);
  EXPECT_NEAR(most, high, 1e-3) << std::string(set.name);
}

// The output bands of [N2] catch a wrong digit in any triple, and a division too few or too many.
TEST(CoefficientsTest, SingularValuesEndInThePublishedBand) {
  ExpectBand(NsCoefficients::kJordan, 5, 0.682, 1.134);
  ExpectBand(NsCoefficients::kYou, 5, 0.978, 1.032);
  ExpectBand(NsCoefficients::kPolarExpress, 8, 1.000, 1.000);
  ExpectBand(NsCoefficients::kPolarExpressExact, 8, 1.000, 1.000);
  ExpectBand(NsCoefficients::kPolarExpress5S102, 5, 0.859, 1.141);
  ExpectBand(NsCoefficients::kPolarExpress5S105, 5, 0.846, 1.124);
  ExpectBand(NsCoefficients::kCans, 5, 0.884, 1.120);
  ExpectBand(NsCoefficients::kDeepSeekV4, 10, 1.000, 1.0005);
  ExpectBand(NsCoefficients::kCubic5, 5, 0.774, 1.300);
}

// [N2], [N3]: cycling, repeating the last, and fixed sets.
TEST(CoefficientsTest, TriplesOfManyStepsEqualTheReference) {
  for (const NewtonSchulzCoefficientSet& set : NewtonSchulzCoefficientSets()) {
    const int fixed = static_cast<int>(set.triples.size());
    const int steps = set.repeat == NsRepeat::kFixed ? fixed : 23;
    const std::string name(set.name);
    const reference::Triples expected = reference::TriplesOfSet(name, steps);
    for (int step = 0; step < steps; ++step) {
      const NewtonSchulzTriple t = TripleOfStep(set, step);
      EXPECT_EQ(t.a, static_cast<float>(expected[step][0])) << name << " step " << step;
      EXPECT_EQ(t.b, static_cast<float>(expected[step][1])) << name << " step " << step;
      EXPECT_EQ(t.c2, static_cast<float>(expected[step][2])) << name << " step " << step;
    }
    EXPECT_EQ(set.safety_factor, reference::SafetyFactorOfSet(name)) << name;
  }
}

// [N2]: `polar_express` is `polar_express_exact` to four decimals, so both are divided.
TEST(CoefficientsTest, PolarExpressIsTheExactSetRounded) {
  const NewtonSchulzCoefficientSet exact = SetOf(NsCoefficients::kPolarExpressExact);
  const NewtonSchulzCoefficientSet rounded = SetOf(NsCoefficients::kPolarExpress);
  for (int step = 0; step < 8; ++step) {
    EXPECT_NEAR(exact.triples[step].a, rounded.triples[step].a, 1e-4) << step;
    EXPECT_NEAR(exact.triples[step].b, rounded.triples[step].b, 1e-4) << step;
    EXPECT_NEAR(exact.triples[step].c2, rounded.triples[step].c2, 1e-4) << step;
  }
}

TEST(CoefficientsTest, EveryNamedEnumeratorHasOneRowInOrder) {
  const auto sets = NewtonSchulzCoefficientSets();
  ASSERT_EQ(static_cast<int>(sets.size()), static_cast<int>(NsCoefficients::kCustom));
  for (size_t i = 0; i < sets.size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(sets[i].id), i);
    EXPECT_FALSE(sets[i].name.empty());
    EXPECT_FALSE(sets[i].triples.empty());
    EXPECT_NE(sets[i].name, "aol");
  }
}

TEST(CoefficientsTest, CustomTakesTriplesAndRepeatFromTheConfiguration) {
  NewtonSchulzConfig config;
  config.coefficients = NsCoefficients::kCustom;
  config.custom = {{2, -1, 0}, {1.5f, -0.5f, 0}};
  config.custom_repeat = NsRepeat::kCycle;
  EXPECT_EQ(TripleOfStep(FindCoefficientSet(config).value(), 2).a, 2);
  EXPECT_EQ(TripleOfStep(FindCoefficientSet(config).value(), 3).a, 1.5f);
  config.custom_repeat = NsRepeat::kLast;
  EXPECT_EQ(TripleOfStep(FindCoefficientSet(config).value(), 2).a, 1.5f);
  EXPECT_EQ(FindCoefficientSet(config)->safety_factor, 1);
}

TEST(CoefficientsTest, AnUnknownEnumeratorHasNoSet) {
  NewtonSchulzConfig config;
  config.coefficients = static_cast<NsCoefficients>(99);
  EXPECT_FALSE(FindCoefficientSet(config).has_value());
}

}  // namespace
}  // namespace kaon::kernels
