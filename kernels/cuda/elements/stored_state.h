// A slot of optimizer state as a kernel reads and writes it: four elements per thread, in the
// layout of kernels/state_codec.h. Device code; all threads of a warp call together, with
// neighbouring elements, and the first thread of the warp is at a multiple of kStateGroup.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_STORED_STATE_H_
#define KAON_KERNELS_CUDA_ELEMENTS_STORED_STATE_H_

#include <cstdint>

#include "kernels/cuda/elements/digest_sum.h"
#include "kernels/cuda/elements/four.h"
#include "kernels/optimizer_rule.h"
#include "kernels/rules/state_group.h"

namespace kaon::kernels::cuda {

template <StateDType dtype>
struct StoredState;

template <>
struct StoredState<StateDType::kFloat32> {
  // Returns the word of the slot at which an element starts, a multiple of kNormBlockElements.
  KAON_DEVICE static int64_t WordOf(int64_t element) { return element; }
  KAON_DEVICE static Four<float> Load(const void* state, int64_t first, int count, bool vector) {
    return LoadFour(static_cast<const float*>(state) + first, count, vector);
  }
  // Writes and digests.
  KAON_DEVICE static void Store(const Four<float>& x, void* state, int64_t first, int count,
                                bool vector, DigestSum& digest) {
    StoreFour(x, static_cast<float*>(state) + first, count, vector);
    digest.AddFour(x, count, first);
  }
};

template <>
struct StoredState<StateDType::kBFloat16> {
  KAON_DEVICE static int64_t WordOf(int64_t element) { return element / 2; }
  KAON_DEVICE static Four<float> Load(const void* state, int64_t first, int count, bool vector) {
    return LoadFourAs(DType::kBFloat16, state, first, count, vector);
  }
  KAON_DEVICE static void Store(const Four<float>& x, void* state, int64_t first, int count,
                                bool vector, DigestSum& digest) {
    Four<uint16_t> stored;
    uint32_t words[2] = {};
    for (int i = 0; i < 4; ++i) {
      stored.of[i] = BFloat16StateOf(x.of[i]);
      if (i < count) words[i / 2] |= static_cast<uint32_t>(stored.of[i]) << (16 * (i % 2));
    }
    digest.AddWithinBlock(words, (count + 1) / 2, first / 2);
    StoreFour(stored, static_cast<uint16_t*>(state) + first, count, vector);
  }
};

// Groups of a scale and 32 codes: 8 threads, of four elements each.
struct StoredGroups {
  static_assert(kStateScaleBytes == 2 && kStateGroupBytes % 2 == 0);

  KAON_DEVICE static int64_t WordOf(int64_t element) {
    return element / kStateGroup * kStateGroupBytes / 4;
  }
  KAON_DEVICE static const uint16_t* GroupOf(const void* state, int64_t first) {
    return static_cast<const uint16_t*>(state) + first / kStateGroup * (kStateGroupBytes / 2);
  }
  // Returns the codes from `first` on, the first in the lowest byte.
  KAON_DEVICE static uint32_t LoadCodes(const uint16_t* group, int64_t first, int count) {
    const uint16_t* const pairs = group + 1 + first % kStateGroup / 2;
    if (count == 4) return pairs[0] | uint32_t{pairs[1]} << 16;
    const auto* const bytes = reinterpret_cast<const uint8_t*>(pairs);
    uint32_t codes = 0;
    for (int i = 0; i < count; ++i) codes |= uint32_t{bytes[i]} << (8 * i);
    return codes;
  }
  // Returns the largest `x` of the threads of the group.
  KAON_DEVICE static uint32_t LargestOfGroup(uint32_t x) {
    for (int mask = Has(SeededBug::kScaleOfHalfGroup) ? 2 : 4; mask > 0; mask /= 2) {
      const uint32_t other = __shfl_xor_sync(kWholeWarp, x, mask);
      x = other > x ? other : x;
    }
    return x;
  }
  // Writes and digests scale and codes, the first code in the lowest byte.
  KAON_DEVICE static void StoreCodes(uint16_t scale, uint32_t codes, void* state, int64_t first,
                                     int count, DigestSum& digest) {
    uint16_t* const group = const_cast<uint16_t*>(GroupOf(state, first));
    const int64_t half = first / kStateGroup * (kStateGroupBytes / 2);
    const int64_t at = 1 + first % kStateGroup / 2;
    const auto low = static_cast<uint16_t>(codes);
    const auto high = static_cast<uint16_t>(codes >> 16);
    const bool is_first = first % kStateGroup == 0;
    if (is_first) group[0] = scale;
    const uint16_t halves[3] = {is_first ? scale : low, is_first ? low : high, high};
    digest.AddHalves(halves, (is_first ? 1 : 0) + (count > 2 ? 2 : 1), is_first ? half : half + at);
    if (count == 4) {
      group[at] = low;
      group[at + 1] = high;
      return;
    }
    auto* const bytes = reinterpret_cast<uint8_t*>(group + at);
    for (int i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(codes >> (8 * i));
  }
};

template <>
struct StoredState<StateDType::kInt8> : StoredGroups {
  KAON_DEVICE static Four<float> Load(const void* state, int64_t first, int count, bool) {
    Four<float> x = {};
    if (count == 0) return x;
    const uint16_t* const group = GroupOf(state, first);
    const float scale = BFloat16ToFloat(group[0]);
    const uint32_t codes = LoadCodes(group, first, count);
    for (int i = 0; i < 4; ++i) {
      if (i < count) x.of[i] = Int8ValueOf(scale, static_cast<int8_t>(codes >> (8 * i)));
    }
    return x;
  }
  KAON_DEVICE static void Store(const Four<float>& x, void* state, int64_t first, int count, bool,
                                DigestSum& digest) {
    uint32_t magnitudes[4];
    uint32_t largest = 0;
    for (int i = 0; i < 4; ++i) {
      magnitudes[i] = FiniteMagnitudeBits(x.of[i]);
      if (i < count && magnitudes[i] > largest) largest = magnitudes[i];
    }
    largest = LargestOfGroup(largest);
    // All threads of the group have read the old scale.
    __syncwarp();
    if (count == 0) return;
    const uint16_t scale = Int8ScaleOf(largest);
    const float divisor = Int8DivisorOf(scale);
    uint32_t codes = 0;
    for (int i = 0; i < 4; ++i) {
      const auto code = static_cast<uint8_t>(Int8CodeOf(x.of[i], magnitudes[i], divisor));
      if (i < count) codes |= static_cast<uint32_t>(code) << (8 * i);
    }
    StoreCodes(scale, codes, state, first, count, digest);
  }
};

template <>
struct StoredState<StateDType::kSqrtUInt8> : StoredGroups {
  KAON_DEVICE static Four<float> Load(const void* state, int64_t first, int count, bool) {
    Four<float> x = {};
    if (count == 0) return x;
    const uint16_t* const group = GroupOf(state, first);
    const float scale = BFloat16ToFloat(group[0]);
    const uint32_t codes = LoadCodes(group, first, count);
    for (int i = 0; i < 4; ++i) {
      if (i < count) x.of[i] = SquareOfRoot(scale, static_cast<uint8_t>(codes >> (8 * i)));
    }
    return x;
  }
  KAON_DEVICE static void Store(const Four<float>& x, void* state, int64_t first, int count,
                                uint32_t root_seed, DigestSum& digest) {
    float roots[4];
    float largest = 0;
    for (int i = 0; i < 4; ++i) {
      roots[i] = RootOf(x.of[i]);
      if (i < count && roots[i] > largest) largest = roots[i];
    }
    // Bits of floats that are not negative are ordered as the floats are.
    const uint16_t scale = RootScaleOf(FloatOf(LargestOfGroup(BitsOf(largest))));
    // All threads of the group have read the old scale.
    __syncwarp();
    if (count == 0) return;
    const float divisor = Int8DivisorOf(scale);
    uint32_t codes = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t code = RootCodeOf(roots[i], divisor, RootDrawOf(root_seed, first + i));
      if (i < count) codes |= code << (8 * i);
    }
    StoreCodes(scale, codes, state, first, count, digest);
  }
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_STORED_STATE_H_
