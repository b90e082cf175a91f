// Keys and multipliers of digest.h as plain formulas, which host tables and device kernels share.
// Abseil-free. Pure functions; any thread.
#ifndef KAON_KERNELS_REDUCE_DIGEST_KEY_H_
#define KAON_KERNELS_REDUCE_DIGEST_KEY_H_

#include <cstdint>

#include "kernels/host_device.h"

namespace kaon::kernels {

// Number of words that share one key.
inline constexpr int64_t kDigestBlock = 512;

// Finalizer of splitmix64; gives keys without a pattern.
KAON_HOST_DEVICE constexpr uint64_t MixDigestKey(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Returns the multiplier of the word at position `place` of a block: odd, from 2^31 on, different
// for every place.
KAON_HOST_DEVICE constexpr uint32_t DigestMultiplier(int64_t place) {
  return static_cast<uint32_t>(MixDigestKey(static_cast<uint64_t>(place)) >> 32) | 0x80000001u;
}

constexpr uint64_t DigestKeyOf(uint64_t domain, uint32_t parameter_id, uint32_t slot) {
  return MixDigestKey(MixDigestKey(domain) ^ (static_cast<uint64_t>(parameter_id) << 32 | slot));
}

// Returns the key of one tensor, which each of its words adds once.
constexpr uint64_t TensorDigestKey(uint32_t parameter_id, uint32_t slot) {
  return DigestKeyOf(0x4b616f6e54656e73ull, parameter_id, slot) | 1;
}

// Returns the factor on the products of one block. Each word has its own multiplier, so zeros count
// too. It is odd: multiplication is a bijection, so one changed word always changes the sum.
KAON_HOST_DEVICE constexpr uint64_t DigestBlockKey(uint64_t tensor_key, uint64_t block) {
  return MixDigestKey(tensor_key ^ block) | 1;
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_DIGEST_KEY_H_
