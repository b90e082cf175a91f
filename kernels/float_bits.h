// The conversions of dtype.h for one element, on bit patterns and without branches. So loops over
// them vectorize, and every machine gives the same bits, with or without conversion instructions.
// Pure functions; any thread.
#ifndef KAON_KERNELS_FLOAT_BITS_H_
#define KAON_KERNELS_FLOAT_BITS_H_

#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"

namespace kaon::kernels {

KAON_HOST_DEVICE uint32_t BitsOf(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

KAON_HOST_DEVICE float FloatOf(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// Returns true if the number with those bits, without its sign, is finite.
KAON_HOST_DEVICE bool IsFiniteMagnitude(uint32_t bits) { return bits < 0x7f800000u; }

KAON_HOST_DEVICE bool IsNonFinite(float x) { return !IsFiniteMagnitude(BitsOf(x) & 0x7fffffffu); }

KAON_HOST_DEVICE float BFloat16ToFloat(uint16_t x) {
  return FloatOf(static_cast<uint32_t>(x) << 16);
}

KAON_HOST_DEVICE uint16_t FloatToBFloat16(float x) {
  const uint32_t bits = BitsOf(x);
  // Half of the last kept bit, less one unless that bit is set: ties go to even.
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  // The quiet bit keeps a NaN whose payload lies in the lost half from becoming infinity.
  const uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

KAON_HOST_DEVICE float Float16ToFloat(uint16_t x) {
  const uint32_t magnitude = static_cast<uint32_t>(x & 0x7fffu) << 13;
  const uint32_t exponent = magnitude & 0x0f800000u;
  const uint32_t rebias = (127u - 15u) << 23;
  // Infinity and NaN get the largest exponent of fp32.
  const uint32_t special = magnitude + (255u - 31u) * (1u << 23);
  // A subnormal is renormalised exactly: subtract the implied one that it does not have.
  const uint32_t subnormal =
      BitsOf(FloatOf(magnitude + rebias + (1u << 23)) - FloatOf(rebias + (1u << 23)));
  uint32_t bits = magnitude + rebias;
  bits = exponent == 0x0f800000u ? special : bits;
  bits = exponent == 0 ? subnormal : bits;
  return FloatOf(bits | (static_cast<uint32_t>(x & 0x8000u) << 16));
}

KAON_HOST_DEVICE uint16_t FloatToFloat16(float x) {
  const uint32_t bits = BitsOf(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal: rebias the exponent and round to even; from 65520 on the carry makes infinity.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal: adding 0.5 makes the adder round at the right bit.
  const uint32_t subnormal = BitsOf(FloatOf(magnitude) + 0.5f) - BitsOf(0.5f);
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  uint32_t half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= (143u << 23) ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? nan : half;
  return static_cast<uint16_t>(half | ((bits >> 16) & 0x8000u));
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_FLOAT_BITS_H_
