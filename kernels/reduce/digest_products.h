// Inner sums of digest.h: words times their multipliers, in registers of each instruction set.
// Loops use them to digest values while they write them. Plain functions and values; any thread.
#ifndef KAON_KERNELS_REDUCE_DIGEST_PRODUCTS_H_
#define KAON_KERNELS_REDUCE_DIGEST_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/streaming_store.h"
#include "kernels/host_device.h"
#include "kernels/reduce/digest_key.h"
#include "kernels/vector_dispatch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kaon::kernels {

// DigestMultiplier of the words in a block. Those of odd positions are stored once more as 64-bit
// values, for products of every second word.
struct DigestMultipliers {
  uint32_t of[kDigestBlock] = {};
  uint64_t of_odd[kDigestBlock / 2] = {};
};

constexpr DigestMultipliers MakeDigestMultipliers() {
  DigestMultipliers multipliers;
  for (int64_t i = 0; i < kDigestBlock; ++i) {
    multipliers.of[i] = DigestMultiplier(i);
    if (i % 2 == 1) multipliers.of_odd[i / 2] = multipliers.of[i];
  }
  return multipliers;
}

alignas(64) inline constexpr DigestMultipliers kDigestMultipliers = MakeDigestMultipliers();

// Returns the sum for `n` unaligned words that start at position `place` of a block. A plain loop,
// for the rest that is no whole step.
KAON_HOST_DEVICE uint64_t SumOfProducts(const void* words, int64_t n, int64_t place) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t word;
    memcpy(&word, static_cast<const char*>(words) + 4 * i, sizeof(word));
    sum += uint64_t{word} * kDigestMultipliers.of[place + i];
  }
  return sum;
}

// Returns the larger of `bits` and the bits of |x|.
KAON_HOST_DEVICE uint32_t LargerMagnitude(uint32_t bits, float x) {
  uint32_t magnitude;
  memcpy(&magnitude, &x, sizeof(magnitude));
  magnitude &= 0x7fffffffu;
  return magnitude > bits ? magnitude : bits;
}

// A sum of products. Callers add kStep words at a time, from a multiple of kStep on. kStep is large
// enough to keep memory busy, and small enough for the set's registers.
// Stream writes kStep values past the caches, to an address that is a multiple of 64
// (streaming_store.h). Add and Stream are compiled for one instruction set and inlined into loops
// of that set; Sum is portable.
struct ScalarProducts {
  static constexpr int64_t kStep = 64;

  uint64_t sum = 0;

  // Largest magnitude of kStep fp32 values, as bits without the sign. The bits order like the
  // numbers, with infinity and NaN at the top.
  struct Largest {
    uint32_t bits = 0;

    void Add(const float* values) {
      for (int64_t i = 0; i < kStep; ++i) bits = LargerMagnitude(bits, values[i]);
    }
    uint32_t Bits() const { return bits; }
  };

  void Add(const void* words, int64_t place) { sum += SumOfProducts(words, kStep, place); }
  uint64_t Sum() const { return sum; }
  static void Stream(const float* from, float* to) { StreamTo(from, kStep * sizeof(float), to); }
};

#if defined(__x86_64__)
// Sum of two registers of 64-bit lanes.
template <typename Register>
uint32_t LargestOfLanes(const Register& x) {
  uint32_t lanes[sizeof(Register) / sizeof(uint32_t)];
  memcpy(lanes, &x, sizeof(x));
  uint32_t largest = 0;
  for (const uint32_t lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

template <typename Register>
uint64_t SumOfLanes(const Register& even, const Register& odd) {
  uint64_t sum = 0;
  for (size_t lane = 0; lane < sizeof(Register) / sizeof(uint64_t); ++lane) {
    sum += static_cast<uint64_t>(even[lane]) + static_cast<uint64_t>(odd[lane]);
  }
  return sum;
}

// Products of the even words in place and of the odd words shifted down. The compiler does not find
// this; it is twice as fast.
struct Avx512Products {
  static constexpr int64_t kStep = 16;

  // Same as ScalarProducts::Largest.
  struct Largest {
    __m512i bits = {};

    KAON_TARGET_AVX512 void Add(const float* values) {
      const __m512i magnitude =
          _mm512_and_si512(_mm512_loadu_si512(values), _mm512_set1_epi32(0x7fffffff));
      bits = _mm512_maskz_max_epu32(0xffff, bits, magnitude);
    }
    uint32_t Bits() const { return LargestOfLanes(bits); }
  };

  __m512i even = {};
  __m512i odd = {};

  KAON_TARGET_AVX512 void Add(const void* words, int64_t place) {
    const __m512i x = _mm512_loadu_si512(words);
    const __m512i of_even = _mm512_load_si512(kDigestMultipliers.of + place);
    const __m512i of_odd = _mm512_load_si512(kDigestMultipliers.of_odd + place / 2);
    // Masks of all lanes: GCC warns about values that the plain intrinsics leave undefined on
    // purpose.
    const __m512i odd_words = _mm512_maskz_srli_epi64(0xff, x, 32);
    even = _mm512_add_epi64(even, _mm512_maskz_mul_epu32(0xff, x, of_even));
    odd = _mm512_add_epi64(odd, _mm512_maskz_mul_epu32(0xff, odd_words, of_odd));
  }
  uint64_t Sum() const { return SumOfLanes(even, odd); }
  KAON_TARGET_AVX512 static void Stream(const float* from, float* to) {
    _mm512_stream_ps(to, _mm512_loadu_ps(from));
  }
};

struct Avx2Products {
  static constexpr int64_t kStep = 64;

  // Same as ScalarProducts::Largest.
  struct Largest {
    __m256i bits = {};

    KAON_TARGET_AVX2 void Add(const float* values) {
      for (int64_t i = 0; i < kStep; i += 8) {
        const auto* const from = reinterpret_cast<const __m256i*>(values + i);
        bits = _mm256_max_epu32(
            bits, _mm256_and_si256(_mm256_loadu_si256(from), _mm256_set1_epi32(0x7fffffff)));
      }
    }
    uint32_t Bits() const { return LargestOfLanes(bits); }
  };

  __m256i even = {};
  __m256i odd = {};

  KAON_TARGET_AVX2 void Add(const void* words, int64_t place) {
    constexpr int64_t kLanes = 8;
    const auto* const x = static_cast<const __m256i*>(words);
    const auto* const of_even = reinterpret_cast<const __m256i*>(kDigestMultipliers.of + place);
    const auto* const of_odd =
        reinterpret_cast<const __m256i*>(kDigestMultipliers.of_odd + place / 2);
    for (int64_t i = 0; i < kStep / kLanes; ++i) {
      const __m256i word = _mm256_loadu_si256(x + i);
      even = _mm256_add_epi64(even, _mm256_mul_epu32(word, _mm256_load_si256(of_even + i)));
      odd = _mm256_add_epi64(
          odd, _mm256_mul_epu32(_mm256_srli_epi64(word, 32), _mm256_load_si256(of_odd + i)));
    }
  }
  uint64_t Sum() const { return SumOfLanes(even, odd); }
  KAON_TARGET_AVX2 static void Stream(const float* from, float* to) {
    for (int64_t i = 0; i < kStep; i += 8) _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
  }
};
#else
using Avx512Products = ScalarProducts;
using Avx2Products = ScalarProducts;
#endif

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_DIGEST_PRODUCTS_H_
