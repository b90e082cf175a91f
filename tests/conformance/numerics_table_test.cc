#include "tests/conformance/numerics_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "kernels/backend.h"

namespace kaon::conformance {
namespace {

std::string KeyOf(const NumericsCase& c) { return c.rule + ": " + c.name + ": " + c.compared; }

TEST(NumericsTableTest, RowsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const NumericsCase& c : NumericsCases()) {
    EXPECT_TRUE(names.insert(KeyOf(c)).second) << KeyOf(c);
  }
}

class NumericsTableTest : public ::testing::TestWithParam<const char*> {};

// [N9], and every rule id the rows name.
TEST_P(NumericsTableTest, EveryRowIsWithinItsTolerance) {
  kernels::BackendOptions options;
  options.gemm = GetParam();
  const absl::StatusOr<std::unique_ptr<kernels::Backend>> backend = kernels::CreateBackend(options);
  ASSERT_TRUE(backend.ok()) << backend.status();
  double seconds = 0;
  for (const NumericsCase& c : NumericsCases()) {
    const NumericsResult result = conformance::Run(c, **backend);
    EXPECT_TRUE(result.passed) << KeyOf(c) << ": error " << result.error << ", tolerance "
                               << c.tolerance;
    seconds += result.seconds;
  }
  RecordProperty("seconds", std::to_string(seconds));
}

INSTANTIATE_TEST_SUITE_P(Gemm, NumericsTableTest, ::testing::Values("reference", "onednn", ""));

}  // namespace
}  // namespace kaon::conformance
