// Order-free 64-bit digest of tensors: the sum, mod 2^64, of one mixed word per element, so that it
// does not depend on placement, shard count or the order of computation (protocol.md section 3).
// Pure functions; any thread.
#ifndef KAON_KERNELS_DIGEST_H_
#define KAON_KERNELS_DIGEST_H_

#include <cstdint>

#include "absl/types/span.h"

namespace kaon::kernels {

// Slot number of the master weight; state slots are 1, 2, ... in StateSlots() order, the gradient
// is 1000.
inline constexpr uint32_t kWeightSlot = 0;
inline constexpr uint32_t kGradientSlot = 1000;

// Sum over i of mix(parameter_id, slot, first_index + i, bits(values[i])); 0 for an empty span.
// Digests of disjoint ranges add up. Detects every single changed, moved or swapped element with
// probability 1 - 2^-64.
uint64_t TensorDigest(uint32_t parameter_id, uint32_t slot, absl::Span<const float> values,
                      uint64_t first_index = 0);

// The same mixing for one integer fact, such as an update counter.
uint64_t FactDigest(uint32_t parameter_id, uint32_t slot, uint64_t value);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_DIGEST_H_
