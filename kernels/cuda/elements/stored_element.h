// Elements of the matrices of Newton-Schulz on a device, by their storage type. Used by kernels;
// any thread.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_STORED_ELEMENT_H_
#define KAON_KERNELS_CUDA_ELEMENTS_STORED_ELEMENT_H_

#include <cstdint>

#include "kernels/float_bits.h"
#include "kernels/host_device.h"
#include "kernels/newton_schulz_config.h"

namespace kaon::kernels::cuda {

template <NsDType dtype>
struct StoredElement;

template <>
struct StoredElement<NsDType::kFloat32> {
  using Bits = float;
  KAON_HOST_DEVICE static float Load(Bits bits) { return bits; }
  KAON_HOST_DEVICE static Bits Round(float value) { return value; }
};

template <>
struct StoredElement<NsDType::kBFloat16> {
  using Bits = uint16_t;
  KAON_HOST_DEVICE static float Load(Bits bits) { return BFloat16ToFloat(bits); }
  KAON_HOST_DEVICE static Bits Round(float value) { return FloatToBFloat16(value); }
};

template <>
struct StoredElement<NsDType::kFloat16> {
  using Bits = uint16_t;
  KAON_HOST_DEVICE static float Load(Bits bits) { return Float16ToFloat(bits); }
  KAON_HOST_DEVICE static Bits Round(float value) { return FloatToFloat16(value); }
};

// Sixteen bytes, accessed at once.
template <typename Bits>
struct alignas(16) ElementVector {
  static constexpr int kSize = 16 / sizeof(Bits);
  Bits values[kSize];
};

// Calls visit.template operator()<dtype>().
template <typename Visit>
void ForDType(NsDType dtype, const Visit& visit) {
  switch (dtype) {
    case NsDType::kFloat32:
      return visit.template operator()<NsDType::kFloat32>();
    case NsDType::kBFloat16:
      return visit.template operator()<NsDType::kBFloat16>();
    case NsDType::kFloat16:
      return visit.template operator()<NsDType::kFloat16>();
  }
}

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_STORED_ELEMENT_H_
