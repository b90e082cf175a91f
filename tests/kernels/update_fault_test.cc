// The bound on updates of [T10]. backend_conformance_update.h and muon_step_test.cc show that rules
// keep their weights.
#include "kernels/update_fault.h"

#include <gtest/gtest.h>

namespace kaon::kernels {
namespace {

// The norm of a correct Newton-Schulz is far below the bound ([T10]), for any set and number of
// steps.
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
