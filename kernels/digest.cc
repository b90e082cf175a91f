#include "kernels/digest.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

#include "kernels/host_device.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

// splitmix64's finalizer: a bijection, so one changed element always changes the sum.
KAON_HOST_DEVICE uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint64_t kTensorDomain = 0x4b616f6e54656e73ull;
constexpr uint64_t kFactDomain = 0x4b616f6e46616374ull;
constexpr uint64_t kWordBytes = 4;

uint64_t KeyOf(uint64_t domain, uint32_t parameter_id, uint32_t slot) {
  return Mix(Mix(domain) ^ (static_cast<uint64_t>(parameter_id) << 32 | slot));
}

// Words from an index on that is a multiple of it: within them an index is that of the first with a
// constant xored to it, which spares the loop its arithmetic.
constexpr int64_t kBlock = 64;

struct IndexBits {
  uint64_t of[kBlock] = {};
};

constexpr IndexBits MakeIndexBits() {
  IndexBits bits;
  for (int64_t i = 0; i < kBlock; ++i) bits.of[i] = static_cast<uint64_t>(i) << 32;
  return bits;
}

alignas(64) constexpr IndexBits kIndexBits = MakeIndexBits();

KAON_HOST_DEVICE uint32_t WordAt(const std::byte* words, int64_t i) {
  uint32_t word;
  memcpy(&word, words + static_cast<int64_t>(kWordBytes) * i, sizeof(word));
  return word;
}

// One block of words, beginning with the one at `i`.
KAON_HOST_DEVICE void FetchBlock(const void* from, int64_t i) {
  constexpr int64_t kLineBytes = 64;
  constexpr int64_t kBlockBytes = kBlock * static_cast<int64_t>(kWordBytes);
  if (from == nullptr) return;
  const auto* block = static_cast<const std::byte*>(from) + static_cast<int64_t>(kWordBytes) * i;
  for (int64_t at = 0; at < kBlockBytes; at += kLineBytes) __builtin_prefetch(block + at);
}

// Elements whose indices share their upper half, which is in `key`; the lower half and the value
// fill one word.
struct SumMixed {
  KAON_HOST_DEVICE static uint64_t Run(const std::byte* words, int64_t n, uint64_t key,
                                       uint64_t low_index, Ahead ahead) {
    uint64_t sum = 0;
    int64_t i = 0;
    if (low_index % kBlock == 0) {
      for (; i + kBlock <= n; i += kBlock) {
        FetchBlock(ahead.first, i);
        FetchBlock(ahead.second, i);
        const uint64_t block_key = key ^ ((low_index + static_cast<uint64_t>(i)) << 32);
        const std::byte* block = words + static_cast<int64_t>(kWordBytes) * i;
        for (int64_t j = 0; j < kBlock; ++j) {
          sum += Mix(block_key ^ (kIndexBits.of[j] | WordAt(block, j)));
        }
      }
    }
    for (; i < n; ++i) {
      const uint64_t index = low_index + static_cast<uint64_t>(i);
      sum += Mix(key ^ (index << 32 | WordAt(words, i)));
    }
    return sum;
  }
};

}  // namespace

TensorDigester::TensorDigester(uint32_t parameter_id, uint32_t slot)
    : key_(KeyOf(kTensorDomain, parameter_id, slot)) {}

uint64_t TensorDigester::OfWords(const std::byte* words, uint64_t num_words, uint64_t first_index,
                                 Ahead ahead) const {
  uint64_t sum = 0;
  uint64_t index = first_index;
  for (uint64_t left = num_words; left > 0;) {
    const uint64_t low = index & 0xffffffffull;
    const uint64_t n = std::min<uint64_t>(left, (1ull << 32) - low);
    const uint64_t key = Mix(key_ ^ (index >> 32));
    sum += RunVectorized<SumMixed>(words, static_cast<int64_t>(n), key, low, ahead);
    words += n * kWordBytes;
    index += n;
    left -= n;
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
