// Elements of encoded optimizer state (state_codec.h), for the CPU's loops and for kernels of a
// device. Abseil-free. Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_STATE_GROUP_H_
#define KAON_KERNELS_RULES_STATE_GROUP_H_

#include <cstdint>

#include "kernels/float_bits.h"
#include "kernels/host_device.h"
#include "kernels/mutation.h"

namespace kaon::kernels {

// Number of contiguous elements that share a scale.
inline constexpr int64_t kStateGroup = 32;
// Bytes of a group in int8: a bf16 scale, then the codes.
inline constexpr int64_t kStateScaleBytes = 2;
inline constexpr int64_t kStateGroupBytes = kStateScaleBytes + kStateGroup;

inline constexpr uint32_t kMagnitudeMask = 0x7fffffffu;
inline constexpr uint32_t kLargestFiniteBits = 0x7f7fffffu;

// Returns x as bf16 state.
KAON_HOST_DEVICE uint16_t BFloat16StateOf(float x) {
  constexpr uint32_t kLargest = 0x7f7f0000u;
  const uint32_t bits = BitsOf(x);
  // An infinity would stay in the buffer for ever; so only an infinity may become one.
  const bool clipped =
      (bits & kMagnitudeMask) <= kLargestFiniteBits && (bits & kMagnitudeMask) > kLargest;
  return FloatToBFloat16(FloatOf(clipped ? (bits & ~kMagnitudeMask) | kLargest : bits));
}

// Returns the bits of |x|; the largest finite ones if x is not finite.
KAON_HOST_DEVICE uint32_t FiniteMagnitudeBits(float x) {
  const uint32_t magnitude = BitsOf(x) & kMagnitudeMask;
  return magnitude < kLargestFiniteBits ? magnitude : kLargestFiniteBits;
}

// Returns the bf16 scale of a group whose largest FiniteMagnitudeBits are `largest`.
KAON_HOST_DEVICE uint16_t Int8ScaleOf(uint32_t largest) {
  // Rounded up: otherwise the largest element would have the code 128, or lose up to 2^-9 of its
  // value.
  constexpr uint32_t kRoundUp = Mutated(Mutation::kInt8ScaleRoundedDown) ? 0 : 0xffff;
  return static_cast<uint16_t>((BitsOf(FloatOf(largest) / 127.0f) + kRoundUp) >> 16);
}

// Returns the divisor that turns an element of the group into its code. A division: the inverse of
// a scale below 2^-128 is infinite.
KAON_HOST_DEVICE float Int8DivisorOf(uint16_t scale_bits) {
  const float scale = BFloat16ToFloat(scale_bits);
  return scale > 0 ? scale : 1.0f;
}

// Returns the code of x, whose FiniteMagnitudeBits are `magnitude`.
KAON_HOST_DEVICE int8_t Int8CodeOf(float x, uint32_t magnitude, float divisor) {
  const float finite = FloatOf(magnitude | (BitsOf(x) & ~kMagnitudeMask));
  // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
  return static_cast<int8_t>(BitsOf(finite / divisor + 12582912.0f));
}

KAON_HOST_DEVICE float Int8ValueOf(float scale, int8_t code) {
  return scale * static_cast<float>(code);
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_STATE_GROUP_H_
