// One direction of a session over shared memory: records through a ring of bytes between two
// processes, one of which writes and one of which reads (docs/formats.md). The other side may write
// anything at any time: what decides where this side reads and writes is taken from shared memory
// once and checked, and its own place in the ring is kept in its own memory. Each end is used by
// one thread at a time.
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

// Both ends' places in a ring: bytes since its beginning. Each is stored by one end only.
struct RingPlaces {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Where a ring lies. Owned by a ShmRegion.
struct RingMemory {
  RingPlaces* places = nullptr;
  // `capacity` bytes that are mapped twice, one behind the other, so that no record is cut.
  std::byte* bytes = nullptr;
  // A power of two.
  size_t capacity = 0;
};

// Stands before each body, at a multiple of its size.
struct RingHeader {
  // Of the body.
  uint32_t size = 0;
  // What the body is; the ring does not look at these.
  uint32_t kind = 0;
  uint32_t call = 0;
  uint32_t code = 0;
};
static_assert(sizeof(RingHeader) == 16);

// Most bytes of a body: as of a message over gRPC.
inline constexpr size_t kMaxRingBody = (size_t{1} << 20) + (size_t{64} << 10);

class RingWriter {
 public:
  explicit RingWriter(const RingMemory& memory) : memory_(memory) {}

  // Memory for a body of at most `most` bytes, of which Commit may take fewer; null while there is
  // no room for it. INVALID_ARGUMENT if the reader says that it read what was never written.
  absl::StatusOr<std::byte*> Reserve(size_t most);
  // What was reserved last is a record of header.size bytes, which the reader may read.
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
    // A copy: as it was when it was checked.
    RingHeader header;
    // Of Peek: in the ring, where the writer may still change it, until Advance.
    absl::Span<const std::byte> body;
  };

  // The next record, if there is one. INVALID_ARGUMENT if what the writer says of it cannot be.
  absl::StatusOr<std::optional<Record>> Peek() const;
  // Gives the record that Peek found back to the writer.
  void Advance(const Record& record);
  // Peek and Advance, with the body copied to `memory`, which nobody else can write.
  absl::StatusOr<std::optional<Record>> Take(std::vector<std::byte>* memory);

 private:
  const RingMemory memory_;
  uint64_t read_ = 0;
};

}  // namespace kaon::proto

#endif  // KAON_PROTO_SHM_RING_H_
