// Elements of encoded optimizer state (state_codec.h), for the CPU's loops and for kernels of a
// device. Abseil-free. Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_STATE_GROUP_H_
#define KAON_KERNELS_RULES_STATE_GROUP_H_

#include <cmath>
#include <cstdint>

#include "kernels/float_bits.h"
#include "kernels/host_device.h"
#include "kernels/mutation.h"

namespace kaon::kernels {

// Number of contiguous elements that share a scale.
inline constexpr int64_t kStateGroup = 32;
// Bytes of a group in int8 and sqrt_uint8: a bf16 scale, then the codes.
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

// Second moments as roots in uint8 (rule [Q2]). Nearest rounding would stall: with beta2 = 0.999 a
// root shrinks by 0.05 % a step, which is less than half a code. So a root is rounded up or down at
// random, in proportion. This keeps the mean of the root. The mean of its square grows by at most a
// quarter of the squared scale. The draw depends on parameter, update and element: slots share it.

// Returns 32 bits, each of which depends on every bit of x (Wellons, lowbias32).
KAON_HOST_DEVICE uint32_t Scrambled(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// Returns the seed of all draws of one update, the t-th of the parameter.
KAON_HOST_DEVICE uint32_t RootSeedOf(uint32_t parameter_id, int64_t t) {
  return Scrambled(Scrambled(parameter_id) + static_cast<uint32_t>(t));
}

// Returns the draw of an element of the slot: a multiple of 2^-16 in [0, 1).
KAON_HOST_DEVICE float RootDrawOf(uint32_t seed, int64_t element) {
  const auto low = static_cast<uint32_t>(element);
  const auto high = static_cast<uint32_t>(static_cast<uint64_t>(element) >> 32);
  return static_cast<float>(Scrambled((seed + high) ^ low) >> 16) * 0x1p-16f;
}

// Returns the root of x >= 0; of the largest finite x if x is not finite.
KAON_HOST_DEVICE float RootOf(float x) { return std::sqrt(FloatOf(FiniteMagnitudeBits(x))); }

// Returns the bf16 scale of a group whose largest root is `largest`, rounded up.
KAON_HOST_DEVICE uint16_t RootScaleOf(float largest) {
  return static_cast<uint16_t>((BitsOf(largest / 255.0f) + 0xffff) >> 16);
}

// Returns the code of a root. A root above 0 has a code above 0: a second moment that vanished
// would make the next update of its element large.
KAON_HOST_DEVICE uint8_t RootCodeOf(float root, float divisor, float draw) {
  const float code = root / divisor + draw;
  const float least = root > 0 ? 1.0f : 0.0f;
  const float raised = code < least ? least : code;
  return static_cast<uint8_t>(static_cast<int32_t>(raised < 255.0f ? raised : 255.0f));
}

KAON_HOST_DEVICE float SquareOfRoot(float scale, uint8_t code) {
  const float root = scale * static_cast<float>(code);
  return FloatOf(FiniteMagnitudeBits(root * root));
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_STATE_GROUP_H_
