// One direction of a session over shared memory: a ring of bytes that carries records from one
// process to another (docs/formats.md). The other side may write anything at any time. So this side
// reads each of its numbers once, checks it, and keeps its own position in private memory. One
// thread at a time uses each end.
#ifndef KAON_PROTO_SHM_RING_H_
#define KAON_PROTO_SHM_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace kaon::proto {

// Positions of both ends: bytes since the beginning. Each is stored by one end only.
struct RingPlaces {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Memory of a ring. Owned by a ShmRegion.
struct RingMemory {
  RingPlaces* places = nullptr;
  // `capacity` bytes, mapped twice in a row, so that every record is contiguous.
  std::byte* bytes = nullptr;
  // A power of two.
  size_t capacity = 0;
};

// Precedes each body, at a multiple of the header's size.
struct RingHeader {
  // Size of the body in bytes.
  uint32_t size = 0;
  // Fields for the reader; the ring ignores them.
  uint32_t kind = 0;
  uint32_t call = 0;
  uint32_t code = 0;
};
static_assert(sizeof(RingHeader) == 16);

// Maximum size of a body in bytes; same as for a message over gRPC.
inline constexpr size_t kMaxRingBody = (size_t{1} << 20) + (size_t{64} << 10);

class RingWriter {
 public:
  explicit RingWriter(const RingMemory& memory) : memory_(memory) {}

  // Returns memory for a body of at most `most` bytes, of which Commit may use fewer; null if there
  // is no room for it now. INVALID_ARGUMENT if the reader claims to have read what was never
  // written.
  absl::StatusOr<std::byte*> Reserve(size_t most);
  // Publishes the memory reserved last as a record of header.size bytes: the reader may read it.
  void Commit(const RingHeader& header);

 private:
  const RingMemory memory_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;
};

class RingReader {
 public:
  explicit RingReader(const RingMemory& memory) : memory_(memory) {}

  struct Record {
    // Copy of the header, as it was when it was checked.
    RingHeader header;
    // The body. After Peek it is in the ring, where the writer may still change it, until Advance.
    absl::Span<const std::byte> body;
  };

  // Returns the next record, if there is one. INVALID_ARGUMENT if its header is impossible.
  absl::StatusOr<std::optional<Record>> Peek() const;
  // Releases the record that Peek returned to the writer.
  void Advance(const Record& record);
  // Peeks and advances; copies the body to `memory`, which no other process can write.
  absl::StatusOr<std::optional<Record>> Take(std::vector<std::byte>* memory);

 private:
  const RingMemory memory_;
  uint64_t read_ = 0;
};

}  // namespace kaon::proto

#endif  // KAON_PROTO_SHM_RING_H_
