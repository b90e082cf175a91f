// Each bug that can be built into the symmetric product is found by the comparison with a loop.
#include <gtest/gtest.h>

#include "kernels/cuda/seeded_bug.h"
#include "tests/kernels/cuda/products/symmetric_cases.h"
#include "tests/kernels/cuda/seeded_bugs.h"

namespace kaon::kernels::cuda {
namespace {

bool ProductsAreRight() {
  return WrongSymmetricProducts({.n = 200, .k = 320, .beta = 1}, 2) == 0 &&
         WrongSymmetricProducts({.n = 264, .k = 320, .multiprocessors = 2}, 3) == 0 &&
         WrongSymmetricProducts({.n = 264, .k = 520, .beta = 1, .multiprocessors = 6}, 1) == 0 &&
         WrongSymmetricProducts({.n = 40, .k = 520, .batch = 2, .multiprocessors = 4}, 2) == 0 &&
         WrongSymmetricProducts({.n = 24, .k = 8, .batch = 2, .far = true}, 1) == 0;
}

TEST(SymmetricBugsTest, NoneIsFoundWithoutOne) {
  EXPECT_FALSE(IsFound(SeededBug::kNone, ProductsAreRight));
}

TEST(SymmetricBugsTest, EachIsFound) {
  for (int bug = 1; bug <= static_cast<int>(SeededBug::kRaggedRowsStored); ++bug) {
    EXPECT_TRUE(IsFound(static_cast<SeededBug>(bug), ProductsAreRight)) << bug;
  }
}

}  // namespace
}  // namespace kaon::kernels::cuda
