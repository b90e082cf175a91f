// The digest of what a kernel writes, summed in the pass that writes it (kernels/reduce/digest.h).
// Device code; the threads of one block share the table.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_DIGEST_SUM_H_
#define KAON_KERNELS_CUDA_ELEMENTS_DIGEST_SUM_H_

#include <cstdint>

#include "kernels/cuda/elements/four.h"
#include "kernels/reduce/digest_key.h"

namespace kaon::kernels::cuda {

// Multipliers of the words of a block.
struct DigestTable {
  alignas(16) uint32_t of[kDigestBlock];
};

constexpr DigestTable MakeDigestTable() {
  DigestTable table = {};
  for (int64_t i = 0; i < kDigestBlock; ++i) table.of[i] = DigestMultiplier(i);
  return table;
}

// The table in device memory. A kernel of many turns copies it to shared memory.
[[maybe_unused]] KAON_DEVICE_CONSTANT DigestTable kDigestTable = MakeDigestTable();

// The block needs a barrier before it reads the table.
KAON_DEVICE void FillDigestTable(DigestTable& table) {
  static_assert(kDigestBlock == kTurn);
  const auto at = 4 * threadIdx.x;
  *reinterpret_cast<Four<uint32_t>*>(table.of + at) =
      *reinterpret_cast<const Four<uint32_t>*>(kDigestTable.of + at);
}

KAON_DEVICE uint32_t PlaceInBlock(int64_t index) {
  return static_cast<uint32_t>(index) % static_cast<uint32_t>(kDigestBlock);
}

// Multipliers of neighbouring words, read at once.
template <int size>
struct alignas(4 * size) Multipliers {
  uint32_t of[size];
};

template <int size>
KAON_DEVICE Multipliers<size> MultipliersAt(const DigestTable& table, int64_t index) {
  return *reinterpret_cast<const Multipliers<size>*>(table.of + PlaceInBlock(index));
}

KAON_DEVICE Four<uint32_t> WordsOf(const Four<float>& x) {
  return {{BitsOf(x.of[0]), BitsOf(x.of[1]), BitsOf(x.of[2]), BitsOf(x.of[3])}};
}

// Returns the factor of the words that share a block with `index`.
KAON_DEVICE uint64_t BlockKeyOf(uint64_t tensor_key, int64_t index) {
  if (Has(SeededBug::kOffset32Bits)) {
    return DigestBlockKey(tensor_key, static_cast<uint32_t>(index) / kDigestBlock);
  }
  return DigestBlockKey(tensor_key, static_cast<uint64_t>(index) / kDigestBlock);
}

// Factors of neighbouring blocks, in shared memory, so that each is computed once.
struct DigestKeys {
  static constexpr int kSize = 8;
  uint64_t of[kSize];

  // Starts with the block of `index`. The thread block needs a barrier before it reads the keys.
  KAON_DEVICE void Fill(uint64_t tensor_key, int64_t index) {
    if (threadIdx.x < kSize) {
      of[threadIdx.x] = BlockKeyOf(tensor_key, index + threadIdx.x * kDigestBlock);
    }
  }
};

// One thread's part of the digest of one tensor.
class DigestSum {
 public:
  KAON_DEVICE DigestSum(const DigestTable& table, uint64_t tensor_key)
      : table_(table), key_(tensor_key) {}
  // All words are in the blocks of `keys`, which was filled for `tensor_key` and `index`.
  KAON_DEVICE DigestSum(const DigestTable& table, uint64_t tensor_key, const DigestKeys& keys,
                        int64_t index)
      : table_(table), key_(tensor_key), keys_(&keys), first_block_(BlockOf(index)) {}

  // Adds the first `count` of the words at `index`, a multiple of their number, in the tensor.
  template <int size>
  KAON_DEVICE void AddWithinBlock(const uint32_t (&words)[size], int count, int64_t index) {
    Add(words, count, MultipliersAt<size>(table_, index), BlockKey(index));
  }
  // Same if the caller has the words' multipliers and the key of their block.
  template <int size>
  KAON_DEVICE void Add(const uint32_t (&words)[size], int count,
                       const Multipliers<size>& multipliers, uint64_t block_key) {
    uint64_t products = 0;
    for (int i = 0; i < size; ++i) {
      if (i < count) products += uint64_t{words[i]} * multipliers.of[i];
    }
    if (Has(SeededBug::kDigestWithoutTail) && count < size) return;
    count_ += static_cast<uint32_t>(count);
    sum_ += products * block_key;
  }
  KAON_DEVICE void AddFour(const Four<float>& x, int count, int64_t index) {
    AddWithinBlock(WordsOf(x).of, count, index);
  }
  // Adds `count` words at any index.
  KAON_DEVICE void AddWords(const Four<float>& x, int count, int64_t index) {
    if (index % 4 == 0) {
      AddFour(x, count, index);
      return;
    }
    for (int i = 0; i < 4; ++i) {
      if (i < count) AddWord(BitsOf(x.of[i]), index + i);
    }
  }
  // Adds the first `count` >= 1 of the 16-bit halves of words. `first` is the number of the first
  // of them in the tensor. They are in one block, or in two.
  template <int size>
  KAON_DEVICE void AddHalves(const uint16_t (&halves)[size], int count, int64_t first) {
    uint64_t products = 0;
    uint64_t key = BlockKey(first / 2);
    for (int i = 0; i < size; ++i) {
      if (i >= count) break;
      const int64_t word = (first + i) / 2;
      const bool low = (first + i) % 2 == 0;
      if (low && i > 0 && PlaceInBlock(word) == 0) {
        sum_ += products * key;
        products = 0;
        key = BlockKey(word);
      }
      const uint32_t bits = low ? uint32_t{halves[i]} : uint32_t{halves[i]} << 16;
      products += uint64_t{bits} * table_.of[PlaceInBlock(word)];
      count_ += low ? 1 : 0;
    }
    sum_ += products * key;
  }

  KAON_DEVICE uint64_t sum() const { return sum_ + uint64_t{count_} * key_; }

 private:
  KAON_DEVICE static uint32_t BlockOf(int64_t index) {
    return static_cast<uint32_t>(static_cast<uint64_t>(index) / kDigestBlock);
  }
  KAON_DEVICE uint64_t BlockKey(int64_t index) const {
    return keys_ != nullptr ? keys_->of[BlockOf(index) - first_block_] : BlockKeyOf(key_, index);
  }
  KAON_DEVICE void AddWord(uint32_t word, int64_t index) {
    ++count_;
    sum_ += uint64_t{word} * table_.of[PlaceInBlock(index)] * BlockKey(index);
  }

  const DigestTable& table_;
  const uint64_t key_;
  const DigestKeys* const keys_ = nullptr;
  const uint32_t first_block_ = 0;
  // Words of the thread, fewer than 2^32. Each adds the tensor's key once.
  uint32_t count_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_DIGEST_SUM_H_
