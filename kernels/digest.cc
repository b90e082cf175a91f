#include "kernels/digest.h"

#include <glog/logging.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "kernels/host_device.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

// splitmix64's finalizer: keys without a pattern.
constexpr uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint64_t kTensorDomain = 0x4b616f6e54656e73ull;
constexpr uint64_t kFactDomain = 0x4b616f6e46616374ull;
constexpr uint64_t kWordBytes = 4;

constexpr uint64_t KeyOf(uint64_t domain, uint32_t parameter_id, uint32_t slot) {
  return Mix(Mix(domain) ^ (static_cast<uint64_t>(parameter_id) << 32 | slot));
}

// Words that share one key.
constexpr int64_t kBlock = 512;
// Words whose successors are fetched at once.
constexpr int64_t kFetch = 64;
static_assert(kBlock % kFetch == 0, "a block is fetched whole");

// What the words of a block count: odd, from 2^31 on, no two alike. Those of odd places once more,
// at places of 64 bits, for products of every second word.
struct Multipliers {
  uint32_t of[kBlock] = {};
  uint64_t of_odd[kBlock / 2] = {};
};

constexpr Multipliers MakeMultipliers() {
  Multipliers multipliers;
  for (int64_t i = 0; i < kBlock; ++i) {
    multipliers.of[i] = static_cast<uint32_t>(Mix(static_cast<uint64_t>(i)) >> 32) | 0x80000001u;
    if (i % 2 == 1) multipliers.of_odd[i / 2] = multipliers.of[i];
  }
  return multipliers;
}

alignas(64) constexpr Multipliers kMultipliers = MakeMultipliers();

constexpr bool AreDistinct(const uint32_t (&values)[kBlock]) {
  for (int64_t i = 0; i < kBlock; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      if (values[i] == values[j]) return false;
    }
  }
  return true;
}
static_assert(AreDistinct(kMultipliers.of), "two words of a block exchanged change the sum");

KAON_HOST_DEVICE uint32_t WordAt(const std::byte* words, int64_t i) {
  uint32_t word;
  memcpy(&word, words + static_cast<int64_t>(kWordBytes) * i, sizeof(word));
  return word;
}

// kFetch words, beginning with the one at `i`.
KAON_HOST_DEVICE void Fetch(const void* from, int64_t i) {
  constexpr int64_t kLineBytes = 64;
  constexpr int64_t kBytes = kFetch * static_cast<int64_t>(kWordBytes);
  if (from == nullptr) return;
  const auto* first = static_cast<const std::byte*>(from) + static_cast<int64_t>(kWordBytes) * i;
  for (int64_t at = 0; at < kBytes; at += kLineBytes) __builtin_prefetch(first + at);
}

// Sum of the products of n words of a block with their multipliers, `ahead` fetched by the way.
struct SumProducts {
  KAON_HOST_DEVICE static uint64_t Run(const std::byte* words, int64_t n,
                                       const uint32_t* multipliers, Ahead ahead) {
    uint64_t sum = 0;
    int64_t i = 0;
    for (; i + kFetch <= n; i += kFetch) {
      Fetch(ahead.first, i);
      Fetch(ahead.second, i);
      for (int64_t j = i; j < i + kFetch; ++j) {
        sum += uint64_t{WordAt(words, j)} * multipliers[j];
      }
    }
    for (; i < n; ++i) sum += uint64_t{WordAt(words, i)} * multipliers[i];
    return sum;
  }
};

#if defined(__x86_64__)
// The same of a whole block: products of the even words where they lie and of the odd ones moved
// down, which the compiler does not find (twice as fast).
KAON_TARGET_AVX512 uint64_t SumBlockAvx512(const std::byte* words, Ahead ahead) {
  constexpr int64_t kLanes = 16;
  __m512i even = _mm512_setzero_si512();
  __m512i odd = _mm512_setzero_si512();
  for (int64_t i = 0; i < kBlock; i += kFetch) {
    Fetch(ahead.first, i);
    Fetch(ahead.second, i);
    for (int64_t j = i; j < i + kFetch; j += kLanes) {
      const __m512i x = _mm512_loadu_si512(words + static_cast<int64_t>(kWordBytes) * j);
      const __m512i of_even = _mm512_load_si512(kMultipliers.of + j);
      const __m512i of_odd = _mm512_load_si512(kMultipliers.of_odd + j / 2);
      even = _mm512_add_epi64(even, _mm512_mul_epu32(x, of_even));
      odd = _mm512_add_epi64(odd, _mm512_mul_epu32(_mm512_srli_epi64(x, 32), of_odd));
    }
  }
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(_mm512_add_epi64(even, odd)));
}

KAON_TARGET_AVX2 uint64_t SumBlockAvx2(const std::byte* words, Ahead ahead) {
  constexpr int64_t kLanes = 8;
  const auto at = [](const void* from) { return static_cast<const __m256i*>(from); };
  __m256i even = _mm256_setzero_si256();
  __m256i odd = _mm256_setzero_si256();
  for (int64_t i = 0; i < kBlock; i += kFetch) {
    Fetch(ahead.first, i);
    Fetch(ahead.second, i);
    for (int64_t j = i; j < i + kFetch; j += kLanes) {
      const __m256i x = _mm256_loadu_si256(at(words + static_cast<int64_t>(kWordBytes) * j));
      const __m256i of_even = _mm256_load_si256(at(kMultipliers.of + j));
      const __m256i of_odd = _mm256_load_si256(at(kMultipliers.of_odd + j / 2));
      even = _mm256_add_epi64(even, _mm256_mul_epu32(x, of_even));
      odd = _mm256_add_epi64(odd, _mm256_mul_epu32(_mm256_srli_epi64(x, 32), of_odd));
    }
  }
  uint64_t lanes[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi64(even, odd));
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}
#endif

// Of n words from place `at` of a block on.
uint64_t SumPart(const std::byte* words, int64_t n, int64_t at, Ahead ahead) {
#if defined(__x86_64__)
  const InstructionSet isa = ChosenInstructionSet().load(std::memory_order_relaxed);
  if (n == kBlock && isa == InstructionSet::kAvx512) return SumBlockAvx512(words, ahead);
  if (n == kBlock && isa == InstructionSet::kAvx2) return SumBlockAvx2(words, ahead);
#endif
  return RunVectorized<SumProducts>(words, n, kMultipliers.of + at, ahead);
}

const std::byte* Later(const void* from, int64_t words) {
  if (from == nullptr) return nullptr;
  return static_cast<const std::byte*>(from) + words * static_cast<int64_t>(kWordBytes);
}

}  // namespace

TensorDigester::TensorDigester(uint32_t parameter_id, uint32_t slot)
    : key_(KeyOf(kTensorDomain, parameter_id, slot) | 1) {}

uint64_t TensorDigester::OfWords(const std::byte* words, uint64_t num_words, uint64_t first_index,
                                 Ahead ahead) const {
  const auto count = static_cast<int64_t>(num_words);
  // Each word counts something of its own, zeros too.
  uint64_t sum = num_words * key_;
  for (int64_t i = 0; i < count;) {
    const uint64_t index = first_index + static_cast<uint64_t>(i);
    const auto at = static_cast<int64_t>(index % kBlock);
    const int64_t n = std::min(kBlock - at, count - i);
    const uint64_t products = SumPart(words + i * static_cast<int64_t>(kWordBytes), n, at,
                                      {Later(ahead.first, i), Later(ahead.second, i)});
    // Odd: a bijection, so one changed word always changes the sum.
    sum += products * (Mix(key_ ^ (index / kBlock)) | 1);
    i += n;
  }
  return sum;
}

uint64_t TensorDigester::Of(absl::Span<const float> values, uint64_t first_index,
                            Ahead ahead) const {
  return OfWords(reinterpret_cast<const std::byte*>(values.data()), values.size(), first_index,
                 ahead);
}

uint64_t TensorDigester::OfBytes(absl::Span<const std::byte> bytes, uint64_t first_byte,
                                 Ahead ahead) const {
  CHECK(first_byte % kWordBytes == 0)
      << "bytes from " << first_byte << ", must be a multiple of " << kWordBytes;
  const uint64_t whole = bytes.size() / kWordBytes;
  const uint64_t first = first_byte / kWordBytes;
  uint64_t sum = OfWords(bytes.data(), whole, first, ahead);
  const absl::Span<const std::byte> rest = bytes.subspan(whole * kWordBytes);
  if (rest.empty()) return sum;
  std::byte last[kWordBytes] = {};
  std::copy(rest.begin(), rest.end(), last);
  return sum + OfWords(last, 1, first + whole, {});
}

uint64_t TensorDigest(uint32_t parameter_id, uint32_t slot, absl::Span<const float> values,
                      uint64_t first_index) {
  return TensorDigester(parameter_id, slot).Of(values, first_index);
}

uint64_t FactDigest(uint32_t parameter_id, uint32_t slot, uint64_t value) {
  return Mix(KeyOf(kFactDomain, parameter_id, slot) ^ value);
}

}  // namespace kaon::kernels
