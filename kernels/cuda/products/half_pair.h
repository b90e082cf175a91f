// Conversions of 16-bit floats for kernels, by the device's own instructions; on the host, those
// of float_bits.h, whose bits are the same except for NaN. Pure functions; any thread.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_HALF_PAIR_H_
#define KAON_KERNELS_CUDA_PRODUCTS_HALF_PAIR_H_

#include <cstdint>
#include <cstring>

#include "kernels/cuda/launch.h"
#include "kernels/dtype.h"
#include "kernels/float_bits.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace kaon::kernels::cuda {

// Returns the fp32 value of an element of `dtype`, kBFloat16 or kFloat16.
template <DType dtype>
KAON_DEVICE float Widened(uint16_t x) {
  if constexpr (dtype == DType::kBFloat16) return BFloat16ToFloat(x);
#if defined(__CUDACC__)
  return __half2float(__ushort_as_half(x));
#else
  return Float16ToFloat(x);
#endif
}

// Returns two numbers rounded to `dtype`, `left` in the low half.
template <DType dtype>
KAON_DEVICE uint32_t RoundedPair(float left, float right) {
#if defined(__CUDACC__)
  uint32_t bits;
  if constexpr (dtype == DType::kBFloat16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(left, right);
    memcpy(&bits, &pair, sizeof(bits));
  } else {
    const __half2 pair = __floats2half2_rn(left, right);
    memcpy(&bits, &pair, sizeof(bits));
  }
  return bits;
#else
  const auto rounded = [](float x) -> uint32_t {
    return dtype == DType::kBFloat16 ? FloatToBFloat16(x) : FloatToFloat16(x);
  };
  return rounded(left) | rounded(right) << 16;
#endif
}

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_HALF_PAIR_H_
