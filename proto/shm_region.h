// The memory of one session: one ring for each direction, in a memfd (docs/formats.md). The shard
// allocates and seals it, so neither side can change its size under the other's mapping. Owned by
// the session; any thread may create one.
#ifndef KAON_PROTO_SHM_REGION_H_
#define KAON_PROTO_SHM_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/descriptor.h"
#include "proto/shm_ring.h"

namespace kaon::proto {

// Capacity of each ring of a session: room for three records, and small enough to stay in caches.
inline constexpr size_t kShmRingBytes = size_t{4} << 20;

class ShmRegion {
 public:
  // Allocates and seals a region. `ring_bytes` is a power of two, at least a page.
  // RESOURCE_EXHAUSTED if the system has no memory for it.
  static absl::StatusOr<std::unique_ptr<ShmRegion>> Create(size_t ring_bytes);
  // Maps the region that the other side created. INVALID_ARGUMENT if it is not sealed, or if its
  // size or version is wrong; RESOURCE_EXHAUSTED if it cannot be mapped.
  static absl::StatusOr<std::unique_ptr<ShmRegion>> Open(Descriptor memory);
  ~ShmRegion();

  // Returns the descriptor to send to the other side.
  int descriptor() const { return memory_.get(); }
  // Returns the ring from the worker to the shard.
  RingMemory requests() const;
  // Returns the ring from the shard to the worker.
  RingMemory responses() const;

 private:
  struct Control;
  ShmRegion(Descriptor memory, size_t ring_bytes)
      : memory_(std::move(memory)), ring_bytes_(ring_bytes) {}
  absl::Status Map();

  const Descriptor memory_;
  const size_t ring_bytes_;
  std::byte* start_ = nullptr;
  size_t mapped_bytes_ = 0;
};

}  // namespace kaon::proto

#endif  // KAON_PROTO_SHM_REGION_H_
