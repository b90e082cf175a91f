// Division by one number for all elements, for the CPU's loop and for kernels of a device. A
// divisor of exactly 1 changes no bit. Abseil-free. Pure functions; any thread.
#ifndef KAON_KERNELS_REDUCE_DIVISION_H_
#define KAON_KERNELS_REDUCE_DIVISION_H_

#include <cmath>
#include <cstdlib>

#include "kernels/host_device.h"

namespace kaon::kernels {

struct Division {
  float by = 1;
  bool multiplies = true;
};

// Multiplies if the divisor is a power of two whose reciprocal is one too, neither subnormal.
// Product and quotient then have equal bits: both are the exact value rounded once. A division
// costs as much as several products.
inline Division PrepareDivision(float divisor) {
  int exponent;
  if (std::frexp(divisor, &exponent) == 0.5f && std::abs(exponent) < 120) {
    return {1 / divisor, true};
  }
  return {divisor, false};
}

KAON_HOST_DEVICE float Divided(const Division& division, float x) {
  return division.multiplies ? x * division.by : x / division.by;
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_DIVISION_H_
