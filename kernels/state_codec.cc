#include "kernels/state_codec.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

#include "kernels/expand.h"
#include "kernels/float_bits.h"
#include "kernels/mutation.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

constexpr uint32_t kMagnitude = 0x7fffffffu;
constexpr uint32_t kLargestFinite = 0x7f7fffffu;
constexpr int64_t kScaleBytes = 2;
constexpr int64_t kGroupBytes = kScaleBytes + kStateGroup;

struct EncodeBFloat16 {
  KAON_HOST_DEVICE static void Run(const float* in, std::byte* bytes, int64_t n) {
    constexpr uint32_t kLargest = 0x7f7f0000u;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t bits = BitsOf(in[i]);
      // An infinity would stay in the buffer for ever; so only an infinity may become one.
      const bool clipped = (bits & kMagnitude) <= kLargestFinite && (bits & kMagnitude) > kLargest;
      const uint16_t x = FloatToBFloat16(FloatOf(clipped ? (bits & ~kMagnitude) | kLargest : bits));
      memcpy(bytes + 2 * i, &x, sizeof(x));
    }
  }
};

// Except for the last group `n` is a constant, so that the loops become a few vector operations.
KAON_HOST_DEVICE void DecodeGroup(const std::byte* group, float* out, int64_t n) {
  uint16_t scale_bits;
  memcpy(&scale_bits, group, sizeof(scale_bits));
  const float scale = BFloat16ToFloat(scale_bits);
  const auto* codes = reinterpret_cast<const int8_t*>(group + kScaleBytes);
  for (int64_t i = 0; i < n; ++i) out[i] = scale * static_cast<float>(codes[i]);
}

KAON_HOST_DEVICE void EncodeGroup(const float* in, std::byte* group, int64_t n) {
  uint32_t magnitudes[kStateGroup];
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = BitsOf(in[i]) & kMagnitude;
    magnitudes[i] = magnitude < kLargestFinite ? magnitude : kLargestFinite;
    largest = largest > magnitudes[i] ? largest : magnitudes[i];
  }
  // Rounded up: otherwise the largest element would have the code 128, or lose up to 2^-9 of its
  // value.
  constexpr uint32_t kRoundUp = Mutated(Mutation::kInt8ScaleRoundedDown) ? 0 : 0xffff;
  const uint32_t up = (BitsOf(FloatOf(largest) / 127.0f) + kRoundUp) >> 16;
  const auto scale_bits = static_cast<uint16_t>(up);
  memcpy(group, &scale_bits, sizeof(scale_bits));
  const float scale = BFloat16ToFloat(scale_bits);
  // A division: the inverse of a scale below 2^-128 is infinite.
  const float divisor = scale > 0 ? scale : 1.0f;
  auto* codes = reinterpret_cast<int8_t*>(group + kScaleBytes);
  for (int64_t i = 0; i < n; ++i) {
    const float x = FloatOf(magnitudes[i] | (BitsOf(in[i]) & ~kMagnitude));
    // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
    codes[i] = static_cast<int8_t>(BitsOf(x / divisor + 12582912.0f));
  }
}

struct DecodeInt8 {
  KAON_HOST_DEVICE static void Run(const std::byte* bytes, float* out, int64_t n) {
    const int64_t full = n / kStateGroup;
    for (int64_t g = 0; g < full; ++g) {
      DecodeGroup(bytes + g * kGroupBytes, out + g * kStateGroup, kStateGroup);
    }
    const int64_t tail = n - full * kStateGroup;
    if (tail > 0) DecodeGroup(bytes + full * kGroupBytes, out + full * kStateGroup, tail);
  }
};

struct EncodeInt8 {
  KAON_HOST_DEVICE static void Run(const float* in, std::byte* bytes, int64_t n) {
    const int64_t full = n / kStateGroup;
    for (int64_t g = 0; g < full; ++g) {
      EncodeGroup(in + g * kStateGroup, bytes + g * kGroupBytes, kStateGroup);
    }
    const int64_t tail = n - full * kStateGroup;
    if (tail > 0) EncodeGroup(in + full * kStateGroup, bytes + full * kGroupBytes, tail);
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
      return num_elements + (num_elements + kStateGroup - 1) / kStateGroup * kScaleBytes;
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
