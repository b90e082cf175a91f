// TDPBF16PS of full tiles in plain loops, written from Intel's manual. Subnormal operands and
// results are 0; everything else equals fused arithmetic. Pure functions; any thread.
#ifndef KAON_TESTS_KERNELS_GEMM_TILE_PRODUCT_H_
#define KAON_TESTS_KERNELS_GEMM_TILE_PRODUCT_H_

#include <cmath>
#include <cstdint>

#include "kernels/float_bits.h"
#include "kernels/host_device.h"

namespace kaon::kernels {

constexpr int64_t kRowsOfTile = 16;

KAON_HOST_DEVICE float WithoutSubnormals(float x) {
  return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}

KAON_HOST_DEVICE float Widened(uint16_t x) { return WithoutSubnormals(BFloat16ToFloat(x)); }

// Multiplies one block into one tile of sums: 16 rows of A, and 16 columns of pairs of B.
struct MultiplyTile {
  KAON_HOST_DEVICE static void Run(const uint16_t* a, const uint16_t* pairs, bool adds,
                                   float* sums) {
    for (int64_t i = 0; i < kRowsOfTile; ++i) {
      float even[kRowsOfTile] = {};
      float odd[kRowsOfTile] = {};
      for (int64_t pair = 0; pair < kRowsOfTile; ++pair) {
        const float left = Widened(a[i * 2 * kRowsOfTile + 2 * pair]);
        const float right = Widened(a[i * 2 * kRowsOfTile + 2 * pair + 1]);
        const uint16_t* const b = pairs + pair * 2 * kRowsOfTile;
        for (int64_t j = 0; j < kRowsOfTile; ++j) {
          even[j] = WithoutSubnormals(std::fma(left, Widened(b[2 * j]), even[j]));
          odd[j] = WithoutSubnormals(std::fma(right, Widened(b[2 * j + 1]), odd[j]));
        }
      }
      for (int64_t j = 0; j < kRowsOfTile; ++j) {
        const float both = WithoutSubnormals(even[j] + odd[j]);
        float& sum = sums[i * kRowsOfTile + j];
        sum = WithoutSubnormals((adds ? WithoutSubnormals(sum) : 0.0f) + both);
      }
    }
  }
};

}  // namespace kaon::kernels

#endif  // KAON_TESTS_KERNELS_GEMM_TILE_PRODUCT_H_
