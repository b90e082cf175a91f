// [T10]; how rules come to keep their weights is in backend_conformance_update.h and
// muon_step_test.cc.
#include "kernels/update_fault.h"

#include <gtest/gtest.h>

namespace kaon::kernels {
namespace {

// [T10]: what a correct Newton-Schulz gives is far below the bound, whatever the set and its steps.
TEST(UpdateFaultTest, TheMostOrthogonalNormLeavesRoom) {
  NewtonSchulzConfig config;
  EXPECT_DOUBLE_EQ(MostOrthogonalNorm(config, 4), 3);
  config.coefficients = NsCoefficients::kPolarExpress;
  config.steps = 1;
  EXPECT_GT(MostOrthogonalNorm(config, 1), 1.99 * 1.1);
  EXPECT_LT(MostOrthogonalNorm(config, 1), 2.5);
  config.coefficients = NsCoefficients::kCustom;
  config.custom = {{4, 0, 0}};
  EXPECT_NEAR(MostOrthogonalNorm(config, 1), 4.4, 1e-2);
}

}  // namespace
}  // namespace kaon::kernels
