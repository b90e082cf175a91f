#include "kernels/cuda/products/mirror.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/mirrored.h"

namespace kaon::kernels::cuda {
namespace {

TEST(MirrorTest, TheLowerTriangleIsMirrored) {
  for (const int64_t n : {1, 8, 63, 64, 65, 130}) {
    EXPECT_TRUE(MirrorsLowerTriangles(n, 1)) << n;
    EXPECT_TRUE(MirrorsLowerTriangles(n, 3)) << n;
  }
}

}  // namespace
}  // namespace kaon::kernels::cuda
