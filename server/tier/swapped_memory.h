// Memory for values that are made anew in each step: more of it than the shard may hold at once. An
// extent has one address for its lifetime. Its pages are there while it is pinned. The extent that
// was used longest ago is written to a file and its pages are released, when another one needs the
// room. Every byte that comes back is compared with a checksum. Thread-safe. NvmeTier owns it.
#ifndef KAON_SERVER_TIER_SWAPPED_MEMORY_H_
#define KAON_SERVER_TIER_SWAPPED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/mutex.h"
#include "kernels/region.h"
#include "server/tier/busy_time.h"
#include "server/tier/file_space.h"
#include "server/tier/file_sums.h"

namespace kaon::tier {

// Keeps the pages of an extent in memory as long as a copy of it lives. Null: they always are.
using PageHold = std::shared_ptr<const void>;

class SwappedMemory {
 public:
  using ExtentId = size_t;
  struct Counters {
    // Bytes between file and memory.
    uint64_t read_bytes = 0;
    uint64_t written_bytes = 0;
    // Time with at least one read, or write.
    absl::Duration read_time;
    absl::Duration write_time;
  };

  // At most `most_bytes` of pages are in memory. `space` outlives this object. `on_failed` gets the
  // first error of a disk, on any thread.
  SwappedMemory(FileSpace& space, uint64_t most_bytes,
                std::function<void(const absl::Status& status)> on_failed);
  // Calls Clear.
  ~SwappedMemory();

  // Adds an extent with undefined contents; there must be room for two of its size.
  // RESOURCE_EXHAUSTED with the arithmetic.
  absl::StatusOr<ExtentId> Add(const std::string& name, uint64_t bytes);
  // Remove one extent, or all. Block until the disk is done. CHECK that no pin is left.
  void Remove(ExtentId id);
  void Clear();

  // Returns the extent's memory, to be touched only while it is pinned.
  kernels::Region region(ExtentId id) const;
  // Pin an extent, for reading what was written, or for changes as well. Writers and readers of an
  // extent exclude each other; their owner sees to it. Blocks until its pages are there. Any
  // failure of the disk is an error of the device, of this call and of all later ones. A thread
  // that has pinned an extent must not wait for another one, unless NumPinnable says that both have
  // room.
  absl::StatusOr<PageHold> Pin(ExtentId id) { return Pin(id, false); }
  absl::StatusOr<PageHold> PinForWrite(ExtentId id) { return Pin(id, true); }
  // Returns how many extents, from the first one on, may be pinned at once; at least 1. They take
  // at most half of the room: others are read meanwhile.
  size_t NumPinnable(absl::Span<const ExtentId> ids) const;
  // Makes the contents undefined, so that nobody writes them to the file.
  void Discard(ExtentId id);
  // Reads extents back in this order, which is that of the next pins, as far as there is room.
  void Prefetch(absl::Span<const ExtentId> ids);

  Counters counters() const;
  uint64_t most_bytes() const { return most_bytes_; }

 private:
  enum class Phase { kOut, kReading, kIn, kWriting };
  struct Extent {
    std::string name;
    absl::Span<std::byte> memory;
    FileSpace::Place place;
    Phase phase = Phase::kOut;
    int pins = 0;
    // Pins that wait for this extent.
    int awaiting = 0;
    // The contents are defined, and the file has them.
    bool has_contents = false;
    bool is_in_file = false;
    bool is_prefetched = false;
    // Counts changes, so that a write of older contents does not count.
    uint64_t changes = 0;
    uint64_t last_use = 0;
    // Those of the contents that the file has.
    FileSums sums;
  };
  struct Transfer {
    ExtentId id = 0;
    bool is_write = false;
    uint64_t changes = 0;
  };

  absl::StatusOr<PageHold> Pin(ExtentId id, bool for_write);
  // Takes room for the extent. If there is none, it makes room and returns false: the caller waits.
  bool TakeRoomLocked(const Extent& extent, bool evict_prefetched)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FreeLocked(Extent& extent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the extent whose pages are needed last; nothing if all are in use.
  std::optional<ExtentId> VictimLocked(bool evict_prefetched) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void QueueLocked(ExtentId id, bool is_write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PrefetchLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Unpin(ExtentId id);
  // Passes queued transfers to the files. Call it without the lock.
  void StartTransfers();
  void OnDone(const Transfer& transfer, absl::Status status);

  FileSpace& space_;
  const uint64_t most_bytes_;
  const std::function<void(const absl::Status& status)> on_failed_;

  mutable Mutex mu_;
  // Signaled after each transfer and each pin.
  CondVar changed_;
  std::deque<Extent> extents_ ABSL_GUARDED_BY(mu_);
  std::deque<ExtentId> upcoming_ ABSL_GUARDED_BY(mu_);
  std::deque<Transfer> queued_ ABSL_GUARDED_BY(mu_);
  // Bytes of pages in memory, and those of them that are being written, to be released then.
  uint64_t used_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t leaving_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // Pins that found no room.
  int waiting_for_room_ ABSL_GUARDED_BY(mu_) = 0;
  int transfers_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  Counters counters_ ABSL_GUARDED_BY(mu_);
  BusyTime reads_ ABSL_GUARDED_BY(mu_);
  BusyTime writes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_SWAPPED_MEMORY_H_
