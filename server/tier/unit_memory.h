// Layout of a unit in a file and in memory, and the bounded memory for units. A version in the file
// is one run of bytes: weights and state, or state and weights. So a unit in memory is weights of
// version 0, state, weights of version 1, and each version is read or written in one piece. Every
// tensor begins at a block. Values; the owner locks.
#ifndef KAON_SERVER_TIER_UNIT_MEMORY_H_
#define KAON_SERVER_TIER_UNIT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "server/disk/block_file.h"
#include "server/tier/backend_memory.h"
#include "server/tier/unit_pin.h"

namespace kaon::tier {

// Sizes and places of the tensors of one unit. Tensor 0 is the weights.
class UnitLayout {
 public:
  UnitLayout() = default;
  UnitLayout(uint64_t weight_bytes, const std::vector<uint64_t>& state_bytes);

  size_t num_tensors() const { return sizes_.size(); }
  // Bytes of a tensor, without padding.
  uint64_t size(size_t tensor) const { return sizes_[tensor]; }
  // Bytes of a version in the file, and of the unit in memory.
  uint64_t version_bytes() const { return weights_ + state_; }
  uint64_t memory_bytes() const { return 2 * weights_ + state_; }
  // Offset of a tensor of a version in the unit's memory.
  uint64_t in_memory(int version, size_t tensor) const {
    if (tensor == 0) return version == 0 ? 0 : weights_ + state_;
    return weights_ + state_offsets_[tensor - 1];
  }
  // Offset of a version in the unit's memory.
  uint64_t version_in_memory(int version) const { return version == 0 ? 0 : weights_; }
  // Returns the tensors of a version in `memory`, which holds the unit.
  UnitTensors Tensors(int version, absl::Span<std::byte> memory) const;

 private:
  std::vector<uint64_t> sizes_;
  // Padded bytes.
  uint64_t weights_ = 0;
  uint64_t state_ = 0;
  std::vector<uint64_t> state_offsets_;
};

// Memory that begins at a block; its contents are undefined. Movable.
class UnitMemory {
 public:
  UnitMemory() = default;
  // RESOURCE_EXHAUSTED. `backend` outlives the result.
  static absl::StatusOr<UnitMemory> Allocate(kernels::Backend& backend, uint64_t bytes);
  // Returns the bytes that Allocate requests from the system.
  static uint64_t BytesFor(uint64_t bytes) { return bytes + disk::kBlockBytes; }

  absl::Span<std::byte> bytes() const { return bytes_; }

 private:
  BackendMemory memory_;
  absl::Span<std::byte> bytes_;
};

// Bounds the memory of units by `most_bytes`. Keeps released memory for the next unit of that size.
class StagingPool {
 public:
  // `backend` outlives the pool.
  StagingPool(kernels::Backend& backend, uint64_t most_bytes)
      : backend_(backend), most_bytes_(most_bytes) {}

  // Returns nothing if there is no room. RESOURCE_EXHAUSTED if the system refuses.
  absl::StatusOr<std::optional<UnitMemory>> Allocate(uint64_t bytes);
  void Release(UnitMemory memory);

  uint64_t most_bytes() const { return most_bytes_; }

 private:
  kernels::Backend& backend_;
  const uint64_t most_bytes_;
  // Includes spare memory.
  uint64_t held_bytes_ = 0;
  std::multimap<uint64_t, UnitMemory> spare_;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_UNIT_MEMORY_H_
