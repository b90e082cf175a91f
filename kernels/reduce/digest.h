// Order-free 64-bit digest of tensors: a sum, mod 2^64, of one term per element. So it does not
// depend on placement, shard count or the order of computation (protocol.md section 3). It detects
// faults, not forgery (ADR 0027). Pure functions and values; any thread.
#ifndef KAON_KERNELS_REDUCE_DIGEST_H_
#define KAON_KERNELS_REDUCE_DIGEST_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace kaon::kernels {

// Slot number of the master weight. State slots are 1, 2, ... in StateSlots() order; the gradient
// is 1000. Slots of facts: the number of updates of the parameter, and the position in the log.
inline constexpr uint32_t kWeightSlot = 0;
inline constexpr uint32_t kGradientSlot = 1000;
inline constexpr uint32_t kUpdatesSlot = 1001;
inline constexpr uint32_t kPositionSlot = 1002;

// Digests one tensor piece by piece. The digests of disjoint ranges add up to TensorDigest of the
// whole.
class TensorDigester {
 public:
  TensorDigester(uint32_t parameter_id, uint32_t slot);

  // Returns the digest of the elements from first_index on. `next`: as many elements to prefetch
  // meanwhile, or null. Digesting is arithmetic on cached values, so memory would otherwise idle.
  uint64_t Of(absl::Span<const float> values, uint64_t first_index,
              const float* next = nullptr) const;
  // Returns the digest of state that is not fp32 (state_codec.h). Its bytes are read as
  // little-endian words of 32 bits, one element each; the last word is padded with zeros.
  // `first_byte` is a multiple of 4 (CHECK).
  uint64_t OfBytes(absl::Span<const std::byte> bytes, uint64_t first_byte) const;
  // Returns the digest of `n` words of the block with that number. `products` is their
  // SumOfProducts (digest_products.h).
  uint64_t OfProducts(uint64_t products, int64_t n, uint64_t block) const;

 private:
  uint64_t OfWords(const std::byte* words, uint64_t num_words, uint64_t first_index,
                   const std::byte* next) const;

  const uint64_t key_;
};

// Returns the sum over elements i = first_index, ... of
//     key + bits(values[i]) * multiplier(i mod 512) * block_key(i / 512)
// with the keys of (parameter_id, slot): docs/formats.md "Digests". 0 for an empty span. Digests of
// disjoint ranges add up.
// If one element changes, or two of a block of 512 are exchanged, the digest always changes. It
// misses any other change with probability 2^-32 or less.
uint64_t TensorDigest(uint32_t parameter_id, uint32_t slot, absl::Span<const float> values,
                      uint64_t first_index = 0);

// Returns the digest of one integer fact, such as an update counter, with the same mixing.
uint64_t FactDigest(uint32_t parameter_id, uint32_t slot, uint64_t value);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_DIGEST_H_
