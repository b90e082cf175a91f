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

// Except for the last group `n` is a constant, so that the loops become a few vector operations.
KAON_HOST_DEVICE void DecodeGroup(const std::byte* group, float* out, int64_t n) {
  uint16_t scale_bits;
  memcpy(&scale_bits, group, sizeof(scale_bits));
  const float scale = BFloat16ToFloat(scale_bits);
  const auto* codes = reinterpret_cast<const int8_t*>(group + kStateScaleBytes);
  for (int64_t i = 0; i < n; ++i) out[i] = Int8ValueOf(scale, codes[i]);
}

KAON_HOST_DEVICE void EncodeGroup(const float* in, std::byte* group, int64_t n) {
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

struct DecodeInt8 {
  KAON_HOST_DEVICE static void Run(const std::byte* bytes, float* out, int64_t n) {
    const int64_t full = n / kStateGroup;
    for (int64_t g = 0; g < full; ++g) {
      DecodeGroup(bytes + g * kStateGroupBytes, out + g * kStateGroup, kStateGroup);
    }
    const int64_t tail = n - full * kStateGroup;
    if (tail > 0) DecodeGroup(bytes + full * kStateGroupBytes, out + full * kStateGroup, tail);
  }
};

struct EncodeInt8 {
  KAON_HOST_DEVICE static void Run(const float* in, std::byte* bytes, int64_t n) {
    const int64_t full = n / kStateGroup;
    for (int64_t g = 0; g < full; ++g) {
      EncodeGroup(in + g * kStateGroup, bytes + g * kStateGroupBytes, kStateGroup);
    }
    const int64_t tail = n - full * kStateGroup;
    if (tail > 0) EncodeGroup(in + full * kStateGroup, bytes + full * kStateGroupBytes, tail);
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
      return num_elements + (num_elements + kStateGroup - 1) / kStateGroup * kStateScaleBytes;
  }
  LOG(FATAL) << "state dtype " << static_cast<int>(dtype) << " is none of float32, bfloat16, int8";
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
      RunVectorized<DecodeInt8>(at, out.data(), n);
      break;
  }
}

void EncodeState(StateDType dtype, absl::Span<const float> in, int64_t first,
                 absl::Span<std::byte> bytes) {
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
      RunVectorized<EncodeInt8>(in.data(), at, n);
      break;
  }
}

}  // namespace kaon::kernels
