// Storage of a slot of optimizer state between updates. It is fp32, or bf16 rounded to nearest
// even. Or it is int8 in groups of 32 elements with a bf16 scale each (rule [Q1]), or roots in such
// groups (rule [Q2]). Memory, files and the wire share one layout of bytes: docs/formats.md. Zero
// bytes are zeros in every dtype. Pure functions; any thread, on disjoint buffers.
#ifndef KAON_KERNELS_STATE_CODEC_H_
#define KAON_KERNELS_STATE_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/optimizer_rule.h"
#include "kernels/rules/state_group.h"

namespace kaon::kernels {

// Returns the bytes of a slot of `num_elements`.
int64_t StateBytes(StateDType dtype, int64_t num_elements);

// out[i] <- element first + i of the slot. `bytes` is the whole slot, at any alignment. `first` is
// a multiple of kStateGroup; so is the number of elements, unless they end the slot (CHECK).
void DecodeState(StateDType dtype, absl::Span<const std::byte> bytes, int64_t first,
                 absl::Span<float> out);

// Encodes; the inverse of DecodeState with the same requirements. Finite values stay finite. Values
// beyond bf16's range become its largest number.
// In int8, a group of largest magnitude A has a scale s < (A / 127) (1 + 2^-7) + 2^-133, and an
// error of at most s / 2. Non-finite values become the largest finite ones in int8.
// In sqrt_uint8, `in` is not negative. A root has a scale s < (A / 255) (1 + 2^-7) and an error
// of at most s, if (A / 255)^2 is a normal number. `root_seed` is RootSeedOf the update.
void EncodeState(StateDType dtype, absl::Span<const float> in, int64_t first,
                 absl::Span<std::byte> bytes, uint32_t root_seed = 0);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_STATE_CODEC_H_
