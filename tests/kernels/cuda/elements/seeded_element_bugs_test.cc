// Each bug that can be built into the element-wise kernels is found by the comparisons with the
// CPU.
#include <gtest/gtest.h>

#include "kernels/cuda/seeded_bug.h"
#include "tests/kernels/cuda/elements/element_cases.h"
#include "tests/kernels/cuda/elements/muon_cases.h"

namespace kaon::kernels::cuda {
namespace {

// Returns the first difference under any of a few orders of threads.
std::string FirstDifference(uint64_t seed) {
  AdamWConfig adamw;
  adamw.momentum_dtype = StateDType::kInt8;
  const std::string differences[] = {
      CompareFold({.num_elements = 3000}, seed),
      CompareFold({.num_elements = 3000, .values = Values::kTiny}, seed),
      CompareMean({.num_elements = 5001}, seed),
      CompareMean({.num_elements = 5001, .values = Values::kNan}, seed),
      CompareUpdate({.rule = AdamWConfig(), .num_elements = 1501}, seed),
      CompareUpdate({.rule = adamw, .num_elements = 1501}, seed),
      CompareMomentum({.sizes = {5001, 900}}, seed),
      CompareMatrices({.rows = 100, .cols = 65, .count = 2}, seed),
      CompareMatrices({.rows = 30, .cols = 66, .first_element = int64_t{1} << 33}, seed),
  };
  for (const std::string& difference : differences) {
    if (!difference.empty()) return difference;
  }
  return "";
}

bool IsFound(SeededBug bug) {
  seeded_bug = bug;
  std::string difference;
  for (uint64_t seed = 1; seed <= 10 && difference.empty(); ++seed) {
    difference = FirstDifference(seed);
  }
  seeded_bug = SeededBug::kNone;
  return !difference.empty();
}

TEST(SeededElementBugsTest, AreFound) {
  for (int bug = static_cast<int>(SeededBug::kNormWithoutBarrier);
       bug <= static_cast<int>(SeededBug::kFactsOfWarpLost); ++bug) {
    EXPECT_TRUE(IsFound(static_cast<SeededBug>(bug))) << "bug " << bug;
  }
}

TEST(SeededElementBugsTest, NothingIsFoundWithoutABug) { EXPECT_FALSE(IsFound(SeededBug::kNone)); }

}  // namespace
}  // namespace kaon::kernels::cuda
