// A unit as NvmeTier keeps it, with its places in file and memory and its users. A value; the tier
// locks.
#ifndef KAON_SERVER_TIER_NVME_UNIT_H_
#define KAON_SERVER_TIER_NVME_UNIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/region.h"
#include "server/tier/file_space.h"
#include "server/tier/file_sums.h"
#include "server/tier/unit_memory.h"
#include "server/tier/unit_pin.h"

namespace kaon::tier {

struct NvmeUnit {
  enum class Phase { kOnDisk, kReading, kReady, kWriting };

  // Returns the offset of a version in the file.
  uint64_t OffsetOf(int version) const {
    return place.offset + static_cast<uint64_t>(version) * layout.version_bytes();
  }
  // Returns the memory of the newest version.
  UnitTensors Tensors() const {
    UnitTensors tensors = layout.Tensors(newest, memory.bytes());
    tensors.newest.insert(tensors.newest.end(), state_in_memory.begin(), state_in_memory.end());
    return tensors;
  }

  UnitLayout layout;
  std::vector<kernels::Region> state_in_memory;
  std::string name;
  // Of version 0; version 1 follows.
  FileSpace::Place place;
  int newest = 0;
  // Versions committed, at most 2. Others are zeros.
  int num_versions = 0;
  Phase phase = Phase::kOnDisk;
  UnitMemory memory;
  // Memory holds the weights of the older version, too.
  bool has_older = false;
  // They are the sums of each version in the file.
  FileSums sums[2];
  bool is_updated = false;
  // Pins and copies that read the memory.
  int readers = 0;
  // Reads of each version in the file.
  int file_readers[2] = {0, 0};
  // Pins that wait for this unit.
  int awaiting = 0;
  // Prefetched and not pinned since.
  bool is_prefetched = false;
  // Keys in evictable_ and prefetched_.
  uint64_t last_use = 0;
  uint64_t prefetch_order = 0;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_NVME_UNIT_H_
