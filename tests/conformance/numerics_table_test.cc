#include "tests/conformance/numerics_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <tuple>

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

// Matrix products and instruction set.
class NumericsTableTest : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

// [N9], and every rule id the rows name.
TEST_P(NumericsTableTest, EveryRowIsWithinItsTolerance) {
  kernels::BackendOptions options;
  std::tie(options.gemm, options.isa) = GetParam();
  const absl::StatusOr<std::unique_ptr<kernels::Backend>> backend = kernels::CreateBackend(options);
  if (absl::IsFailedPrecondition(backend.status())) GTEST_SKIP() << backend.status();
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

// The products are those of the reference, of the library, and the fastest ones of this machine.
INSTANTIATE_TEST_SUITE_P(GemmAndIsa, NumericsTableTest,
                         ::testing::Combine(::testing::Values("reference", "onednn", ""),
                                            ::testing::Values("widest", "avx2", "scalar")));

}  // namespace
}  // namespace kaon::conformance
