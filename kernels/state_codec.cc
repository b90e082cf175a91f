#include "kernels/state_codec.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

#include "kernels/expand.h"
#include "kernels/rules/state_group.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

struct EncodeBFloat16 {
  KAON_HOST_DEVICE static void Run(const float* in, std::byte* bytes, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const uint16_t x = BFloat16StateOf(in[i]);
      memcpy(bytes + 2 * i, &x, sizeof(x));
    }
  }
};

// Scale and codes of one group. Except for the last group `n` is a constant, so that the loops
// become a few vector operations.
KAON_HOST_DEVICE float ScaleOf(const std::byte* group) {
  uint16_t scale_bits;
  memcpy(&scale_bits, group, sizeof(scale_bits));
  return BFloat16ToFloat(scale_bits);
}

struct Int8Group {
  KAON_HOST_DEVICE static void Decode(const std::byte* group, float* out, int64_t n) {
    const float scale = ScaleOf(group);
    const auto* codes = reinterpret_cast<const int8_t*>(group + kStateScaleBytes);
    for (int64_t i = 0; i < n; ++i) out[i] = Int8ValueOf(scale, codes[i]);
  }

  KAON_HOST_DEVICE static void Encode(const float* in, std::byte* group, int64_t n, int64_t,
                                      uint32_t) {
    uint32_t magnitudes[kStateGroup];
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      magnitudes[i] = FiniteMagnitudeBits(in[i]);
      largest = largest > magnitudes[i] ? largest : magnitudes[i];
    }
    const uint16_t scale_bits = Int8ScaleOf(largest);
    memcpy(group, &scale_bits, sizeof(scale_bits));
    const float divisor = Int8DivisorOf(scale_bits);
    auto* codes = reinterpret_cast<int8_t*>(group + kStateScaleBytes);
    for (int64_t i = 0; i < n; ++i) codes[i] = Int8CodeOf(in[i], magnitudes[i], divisor);
  }
};

struct SqrtUInt8Group {
  KAON_HOST_DEVICE static void Decode(const std::byte* group, float* out, int64_t n) {
    const float scale = ScaleOf(group);
    const auto* codes = reinterpret_cast<const uint8_t*>(group + kStateScaleBytes);
    for (int64_t i = 0; i < n; ++i) out[i] = SquareOfRoot(scale, codes[i]);
  }

  KAON_HOST_DEVICE static void Encode(const float* in, std::byte* group, int64_t n, int64_t first,
                                      uint32_t seed) {
    float roots[kStateGroup];
    float largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      roots[i] = RootOf(in[i]);
      largest = largest > roots[i] ? largest : roots[i];
    }
    const uint16_t scale_bits = RootScaleOf(largest);
    memcpy(group, &scale_bits, sizeof(scale_bits));
    const float divisor = Int8DivisorOf(scale_bits);
    auto* codes = reinterpret_cast<uint8_t*>(group + kStateScaleBytes);
    for (int64_t i = 0; i < n; ++i) {
      codes[i] = RootCodeOf(roots[i], divisor, RootDrawOf(seed, first + i));
    }
  }
};

template <typename Group>
struct DecodeGroups {
  KAON_HOST_DEVICE static void Run(const std::byte* bytes, float* out, int64_t n) {
    const int64_t full = n / kStateGroup;
    for (int64_t g = 0; g < full; ++g) {
      Group::Decode(bytes + g * kStateGroupBytes, out + g * kStateGroup, kStateGroup);
    }
    const int64_t tail = n - full * kStateGroup;
    if (tail > 0) Group::Decode(bytes + full * kStateGroupBytes, out + full * kStateGroup, tail);
  }
};

// The first of the `n` elements is number `first` of the slot.
template <typename Group>
struct EncodeGroups {
  KAON_HOST_DEVICE static void Run(const float* in, std::byte* bytes, int64_t n, int64_t first,
                                   uint32_t seed) {
    const int64_t full = n / kStateGroup;
    for (int64_t g = 0; g < full; ++g) {
      const int64_t at = g * kStateGroup;
      Group::Encode(in + at, bytes + g * kStateGroupBytes, kStateGroup, first + at, seed);
    }
    const int64_t at = full * kStateGroup;
    if (at < n) Group::Encode(in + at, bytes + full * kStateGroupBytes, n - at, first + at, seed);
  }
};

// Returns the offset of element `first` in a slot of `size` bytes; `n` elements are requested.
int64_t OffsetOf(StateDType dtype, int64_t size, int64_t first, int64_t n) {
  CHECK(first >= 0 && first % kStateGroup == 0)
      << "first element is " << first << ", must be a multiple of " << kStateGroup;
  const int64_t end = StateBytes(dtype, first + n);
  CHECK(end <= size) << "elements " << first << " .. " << first + n << " end at byte " << end
                     << " of a slot of " << size;
  CHECK(n % kStateGroup == 0 || end == size)
      << n << " elements from " << first << " cut a group of " << kStateGroup << " in two";
  return StateBytes(dtype, first);
}

}  // namespace

int64_t StateBytes(StateDType dtype, int64_t num_elements) {
  switch (dtype) {
    case StateDType::kFloat32:
      return num_elements * 4;
    case StateDType::kBFloat16:
      return num_elements * 2;
    case StateDType::kInt8:
    case StateDType::kSqrtUInt8:
      return num_elements + (num_elements + kStateGroup - 1) / kStateGroup * kStateScaleBytes;
  }
  LOG(FATAL) << "state dtype " << static_cast<int>(dtype) << " is none of the state dtypes";
}

void DecodeState(StateDType dtype, absl::Span<const std::byte> bytes, int64_t first,
                 absl::Span<float> out) {
  const auto n = static_cast<int64_t>(out.size());
  const int64_t offset = OffsetOf(dtype, static_cast<int64_t>(bytes.size()), first, n);
  if (n == 0) return;
  const std::byte* at = bytes.data() + offset;
  switch (dtype) {
    case StateDType::kFloat32:
      memcpy(out.data(), at, out.size() * sizeof(float));
      break;
    case StateDType::kBFloat16:
      RunVectorized<ExpandBFloat16>(at, out.data(), n);
      break;
    case StateDType::kInt8:
      RunVectorized<DecodeGroups<Int8Group>>(at, out.data(), n);
      break;
    case StateDType::kSqrtUInt8:
      RunVectorized<DecodeGroups<SqrtUInt8Group>>(at, out.data(), n);
      break;
  }
}

void EncodeState(StateDType dtype, absl::Span<const float> in, int64_t first,
                 absl::Span<std::byte> bytes, uint32_t root_seed) {
  const auto n = static_cast<int64_t>(in.size());
  const int64_t offset = OffsetOf(dtype, static_cast<int64_t>(bytes.size()), first, n);
  if (n == 0) return;
  std::byte* at = bytes.data() + offset;
  switch (dtype) {
    case StateDType::kFloat32:
      memcpy(at, in.data(), in.size() * sizeof(float));
      break;
    case StateDType::kBFloat16:
      RunVectorized<EncodeBFloat16>(in.data(), at, n);
      break;
    case StateDType::kInt8:
      RunVectorized<EncodeGroups<Int8Group>>(in.data(), at, n, first, root_seed);
      break;
    case StateDType::kSqrtUInt8:
      RunVectorized<EncodeGroups<SqrtUInt8Group>>(in.data(), at, n, first, root_seed);
      break;
  }
}

}  // namespace kaon::kernels
