#include "kernels/digest.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

#include "kernels/host_device.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

constexpr uint64_t kTensorDomain = 0x4b616f6e54656e73ull;
constexpr uint64_t kFactDomain = 0x4b616f6e46616374ull;
constexpr uint64_t kWordBytes = 4;

constexpr uint64_t KeyOf(uint64_t domain, uint32_t parameter_id, uint32_t slot) {
  return MixDigestKey(MixDigestKey(domain) ^ (static_cast<uint64_t>(parameter_id) << 32 | slot));
}

// Words whose successors are fetched at once.
constexpr int64_t kFetch = 64;
static_assert(kDigestBlock % kFetch == 0, "a block is fetched whole");
#if defined(__x86_64__)
static_assert(Avx2Products::kStep == kFetch, "what is fetched is added at once");
#endif

constexpr bool AreDistinct(const uint32_t (&values)[kDigestBlock]) {
  for (int64_t i = 0; i < kDigestBlock; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      if (values[i] == values[j]) return false;
    }
  }
  return true;
}
static_assert(AreDistinct(kDigestMultipliers.of), "two words of a block exchanged change the sum");

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
// The same of a whole block.
KAON_TARGET_AVX512 uint64_t SumBlockAvx512(const std::byte* words, Ahead ahead) {
  Avx512Products products;
  for (int64_t i = 0; i < kDigestBlock; i += kFetch) {
    Fetch(ahead.first, i);
    Fetch(ahead.second, i);
    for (int64_t j = i; j < i + kFetch; j += Avx512Products::kStep) {
      products.Add(words + static_cast<int64_t>(kWordBytes) * j, j);
    }
  }
  return products.Sum();
}

KAON_TARGET_AVX2 uint64_t SumBlockAvx2(const std::byte* words, Ahead ahead) {
  Avx2Products products;
  for (int64_t i = 0; i < kDigestBlock; i += Avx2Products::kStep) {
    Fetch(ahead.first, i);
    Fetch(ahead.second, i);
    products.Add(words + static_cast<int64_t>(kWordBytes) * i, i);
  }
  return products.Sum();
}
#endif

// Of n words from place `at` of a block on.
uint64_t SumPart(const std::byte* words, int64_t n, int64_t at, Ahead ahead) {
#if defined(__x86_64__)
  const InstructionSet isa = ChosenInstructionSet().load(std::memory_order_relaxed);
  if (n == kDigestBlock && isa == InstructionSet::kAvx512) return SumBlockAvx512(words, ahead);
  if (n == kDigestBlock && isa == InstructionSet::kAvx2) return SumBlockAvx2(words, ahead);
#endif
  return RunVectorized<SumProducts>(words, n, kDigestMultipliers.of + at, ahead);
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
  uint64_t sum = 0;
  for (int64_t i = 0; i < count;) {
    const uint64_t index = first_index + static_cast<uint64_t>(i);
    const auto at = static_cast<int64_t>(index % kDigestBlock);
    const int64_t n = std::min(kDigestBlock - at, count - i);
    const uint64_t products = SumPart(words + i * static_cast<int64_t>(kWordBytes), n, at,
                                      {Later(ahead.first, i), Later(ahead.second, i)});
    sum += OfProducts(products, n, index / kDigestBlock);
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
  return MixDigestKey(KeyOf(kFactDomain, parameter_id, slot) ^ value);
}

}  // namespace kaon::kernels
