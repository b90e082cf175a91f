// Half-precision values as fp32, in loops of whatever instruction set they are called from.
// Pure functions; any thread.
#ifndef KAON_KERNELS_EXPAND_H_
#define KAON_KERNELS_EXPAND_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/float_bits.h"
#include "kernels/host_device.h"

namespace kaon::kernels {

// out[0 .. n) <- the values at `src`, in their own byte order, wherever they lie.
struct ExpandBFloat16 {
  KAON_HOST_DEVICE static void Run(const std::byte* src, float* out, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      uint16_t x;
      memcpy(&x, src + 2 * i, sizeof(x));
      out[i] = BFloat16ToFloat(x);
    }
  }
};

struct ExpandFloat16 {
  KAON_HOST_DEVICE static void Run(const std::byte* src, float* out, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      uint16_t x;
      memcpy(&x, src + 2 * i, sizeof(x));
      out[i] = Float16ToFloat(x);
    }
  }
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_EXPAND_H_
