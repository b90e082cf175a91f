// Conversion of half-precision values to fp32, inlined into loops of any instruction set. Pure
// functions; any thread.
#ifndef KAON_KERNELS_EXPAND_H_
#define KAON_KERNELS_EXPAND_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/float_bits.h"
#include "kernels/host_device.h"

namespace kaon::kernels {

// out[0 .. n) <- the fp32 values of the 16-bit values at `src` (unaligned allowed).
template <float (*widen)(uint16_t)>
struct Expand {
  KAON_HOST_DEVICE static void Run(const std::byte* src, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      uint16_t x;
      memcpy(&x, src + 2 * i, sizeof(x));
      out[i] = widen(x);
    }
  }
};

using ExpandBFloat16 = Expand<BFloat16ToFloat>;
using ExpandFloat16 = Expand<Float16ToFloat>;

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_EXPAND_H_
