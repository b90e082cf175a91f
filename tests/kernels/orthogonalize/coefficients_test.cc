#include "kernels/orthogonalize/coefficients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/reference/float64_optimizer.h"

namespace kaon::kernels {
namespace {

double Iterated(NsCoefficients set, int steps, double s) {
  for (int step = 0; step < steps; ++step) {
    const NewtonSchulzTriple t = NewtonSchulzCoefficients(set, step);
    s = t.a * s + t.b * s * s * s + t.c2 * s * s * s * s * s;
  }
  return s;
}

void ExpectBand(NsCoefficients set, int steps, double low, double high) {
  double least = 10;
  double most = 0;
  for (double s = 0.01; s <= 1.0; s += 1e-4) {
    least = std::min(least, Iterated(set, steps, s));
    most = std::max(most, Iterated(set, steps, s));
  }
  EXPECT_NEAR(least, low, 1e-3);
  EXPECT_NEAR(most, high, 1e-3);
}

// The output bands of [N2] catch a wrong digit in any triple.
TEST(CoefficientsTest, SingularValuesEndInThePublishedBand) {
  ExpectBand(NsCoefficients::kJordan, 5, 0.682, 1.134);
  ExpectBand(NsCoefficients::kPolarExpress, 8, 1.000, 1.000);
}

TEST(CoefficientsTest, TriplesEqualTheReferenceAndTheLastRepeats) {
  for (int step = 0; step < 12; ++step) {
    const auto expect_same = [step](NewtonSchulzTriple t, const reference::Triples& expected) {
      EXPECT_EQ(t.a, static_cast<float>(expected[step][0]));
      EXPECT_EQ(t.b, static_cast<float>(expected[step][1]));
      EXPECT_EQ(t.c2, static_cast<float>(expected[step][2]));
    };
    expect_same(NewtonSchulzCoefficients(NsCoefficients::kJordan, step), reference::Jordan(12));
    expect_same(NewtonSchulzCoefficients(NsCoefficients::kPolarExpress, step),
                reference::PolarExpress(12));
  }
}

TEST(CoefficientsTest, EverySetHasOneRowWithANameAndTriples) {
  EXPECT_EQ(NewtonSchulzCoefficientSets().size(), 2u);
  for (const NewtonSchulzCoefficientSet& set : NewtonSchulzCoefficientSets()) {
    EXPECT_FALSE(set.name.empty());
    EXPECT_FALSE(set.triples.empty());
    EXPECT_EQ(NewtonSchulzCoefficients(set.id, 0).a, set.triples[0].a);
  }
}

}  // namespace
}  // namespace kaon::kernels
