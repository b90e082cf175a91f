// The digest of what a kernel writes, summed in the pass that writes it (kernels/reduce/digest.h).
// Device code; the threads of one block share the table.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_DIGEST_SUM_H_
#define KAON_KERNELS_CUDA_ELEMENTS_DIGEST_SUM_H_

#include <cstdint>

#include "kernels/cuda/elements/four.h"
#include "kernels/reduce/digest_key.h"

namespace kaon::kernels::cuda {

// Multipliers of the words of a block, in shared memory.
struct DigestTable {
  alignas(16) uint32_t of[kDigestBlock];
};

// The block needs a barrier before it reads the table.
KAON_DEVICE void FillDigestTable(DigestTable& table) {
  for (int64_t i = threadIdx.x; i < kDigestBlock; i += blockDim.x) {
    table.of[i] = DigestMultiplier(i);
  }
}

// One thread's part of the digest of one tensor.
class DigestSum {
 public:
  KAON_DEVICE DigestSum(const DigestTable& table, uint64_t tensor_key)
      : table_(table), key_(tensor_key) {}

  // Adds the first `count` of the words at `index`, a multiple of their number, in the tensor.
  template <int size>
  KAON_DEVICE void AddWithinBlock(const uint32_t (&words)[size], int count, int64_t index) {
    struct alignas(4 * size) Multipliers {
      uint32_t of[size];
    };
    const auto multipliers =
        *reinterpret_cast<const Multipliers*>(table_.of + index % kDigestBlock);
    uint64_t products = 0;
    for (int i = 0; i < size; ++i) {
      if (i < count) products += uint64_t{words[i]} * multipliers.of[i];
    }
    if (Has(SeededBug::kDigestWithoutTail) && count < size) return;
    sum_ += static_cast<uint64_t>(count) * key_ + products * BlockKey(index);
  }
  KAON_DEVICE void AddFour(const Four<float>& x, int count, int64_t index) {
    const uint32_t words[4] = {BitsOf(x.of[0]), BitsOf(x.of[1]), BitsOf(x.of[2]), BitsOf(x.of[3])};
    AddWithinBlock(words, count, index);
  }
  // Adds `count` words at any index.
  KAON_DEVICE void AddWords(const Four<float>& x, int count, int64_t index) {
    if (index % 4 == 0) {
      AddFour(x, count, index);
      return;
    }
    for (int i = 0; i < 4; ++i) {
      if (i < count) AddHalves(BitsOf(x.of[i]), index + i, true);
    }
  }
  // Adds one half of a word: number `half_index` of the tensor's 16-bit halves.
  KAON_DEVICE void AddHalf(uint16_t half, int64_t half_index) {
    const bool low = half_index % 2 == 0;
    AddHalves(low ? uint64_t{half} : uint64_t{half} << 16, half_index / 2, low);
  }

  KAON_DEVICE uint64_t sum() const { return sum_; }

 private:
  KAON_DEVICE uint64_t BlockKey(int64_t index) const {
    if (Has(SeededBug::kOffset32Bits)) {
      return DigestBlockKey(key_, static_cast<uint32_t>(index) / kDigestBlock);
    }
    return DigestBlockKey(key_, static_cast<uint64_t>(index / kDigestBlock));
  }
  KAON_DEVICE void AddHalves(uint64_t word, int64_t index, bool counts) {
    sum_ += (counts ? key_ : 0) + word * table_.of[index % kDigestBlock] * BlockKey(index);
  }

  const DigestTable& table_;
  const uint64_t key_;
  uint64_t sum_ = 0;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_DIGEST_SUM_H_
