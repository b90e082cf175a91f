#include "kernels/reduce/digest.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

#include "kernels/host_device.h"
#include "kernels/reduce/digest_key.h"
#include "kernels/reduce/digest_products.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

constexpr uint64_t kFactDomain = 0x4b616f6e46616374ull;
constexpr int64_t kWordBytes = 4;

constexpr bool AreDistinct(const uint32_t (&values)[kDigestBlock]) {
  for (int64_t i = 0; i < kDigestBlock; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      if (values[i] == values[j]) return false;
    }
  }
  return true;
}
static_assert(AreDistinct(kDigestMultipliers.of), "two words of a block exchanged change the sum");

// Sums a whole block and prefetches as many words from `next` on, unless it is null.
template <typename Products>
struct SumBlock {
  KAON_HOST_DEVICE static uint64_t Run(const std::byte* words, const std::byte* next) {
    constexpr int64_t kLineBytes = 64;
    Products products;
    for (int64_t i = 0; i < kDigestBlock; i += Products::kStep) {
      constexpr int64_t kBytes = Products::kStep * kWordBytes;
      for (int64_t at = 0; next != nullptr && at < kBytes; at += kLineBytes) {
        __builtin_prefetch(next + i * kWordBytes + at);
      }
      products.Add(words + i * kWordBytes, i);
    }
    return products.Sum();
  }
};

struct SumPart {
  KAON_HOST_DEVICE static uint64_t Run(const std::byte* words, int64_t n, int64_t place) {
    return SumOfProducts(words, n, place);
  }
};

// Sums n words from position `place` of a block on.
uint64_t ProductsOf(const std::byte* words, int64_t n, int64_t place, const std::byte* next) {
  if (n < kDigestBlock) return RunVectorized<SumPart>(words, n, place);
  return RunOneOf<SumBlock<Avx512Products>, SumBlock<Avx2Products>, SumBlock<ScalarProducts>>(
      ChosenInstructionSet().load(std::memory_order_relaxed), words, next);
}

}  // namespace

TensorDigester::TensorDigester(uint32_t parameter_id, uint32_t slot)
    : key_(TensorDigestKey(parameter_id, slot)) {}

uint64_t TensorDigester::OfWords(const std::byte* words, uint64_t num_words, uint64_t first_index,
                                 const std::byte* next) const {
  const auto count = static_cast<int64_t>(num_words);
  uint64_t sum = 0;
  for (int64_t i = 0; i < count;) {
    const uint64_t index = first_index + static_cast<uint64_t>(i);
    const auto at = static_cast<int64_t>(index % kDigestBlock);
    const int64_t n = std::min(kDigestBlock - at, count - i);
    const int64_t skipped = i * kWordBytes;
    const uint64_t products =
        ProductsOf(words + skipped, n, at, next == nullptr ? nullptr : next + skipped);
    sum += OfProducts(products, n, index / kDigestBlock);
    i += n;
  }
  return sum;
}

uint64_t TensorDigester::Of(absl::Span<const float> values, uint64_t first_index,
                            const float* next) const {
  return OfWords(reinterpret_cast<const std::byte*>(values.data()), values.size(), first_index,
                 reinterpret_cast<const std::byte*>(next));
}

uint64_t TensorDigester::OfProducts(uint64_t products, int64_t n, uint64_t block) const {
  return static_cast<uint64_t>(n) * key_ + products * DigestBlockKey(key_, block);
}

uint64_t TensorDigester::OfBytes(absl::Span<const std::byte> bytes, uint64_t first_byte) const {
  CHECK(first_byte % kWordBytes == 0)
      << "bytes from " << first_byte << ", must be a multiple of " << kWordBytes;
  const uint64_t whole = bytes.size() / uint64_t{kWordBytes};
  const uint64_t first = first_byte / kWordBytes;
  uint64_t sum = OfWords(bytes.data(), whole, first, nullptr);
  const absl::Span<const std::byte> rest = bytes.subspan(whole * kWordBytes);
  if (rest.empty()) return sum;
  std::byte last[kWordBytes] = {};
  std::copy(rest.begin(), rest.end(), last);
  return sum + OfWords(last, 1, first + whole, nullptr);
}

uint64_t TensorDigest(uint32_t parameter_id, uint32_t slot, absl::Span<const float> values,
                      uint64_t first_index) {
  return TensorDigester(parameter_id, slot).Of(values, first_index);
}

uint64_t FactDigest(uint32_t parameter_id, uint32_t slot, uint64_t value) {
  return MixDigestKey(DigestKeyOf(kFactDomain, parameter_id, slot) ^ value);
}

}  // namespace kaon::kernels
