// Parameters that live in files on disks and are in memory only while they are used. A unit is
// the weights and the optimizer state of one parameter. It has two versions in the file. An update
// reads one and writes the other, so the older one stays whole. Memory for units, staging, is
// bounded: the tier prefetches units in the order of a step and writes them after their update. A
// unit stays in memory until it is evicted for another one. Every byte that comes from a file is
// compared with a checksum of what was written. Thread-safe. The shard's composition root owns it.
#ifndef KAON_SERVER_TIER_NVME_TIER_H_
#define KAON_SERVER_TIER_NVME_TIER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/mutex.h"
#include "server/disk/block_file.h"
#include "server/tier/busy_time.h"
#include "server/tier/file_space.h"
#include "server/tier/nvme_unit.h"
#include "server/tier/swapped_memory.h"
#include "server/tier/unit_home.h"
#include "server/tier/unit_memory.h"
#include "server/tier/unit_pin.h"

namespace kaon::tier {

class NvmeTier final : public UnitHome, private UnitPins {
 public:
  struct Counters {
    // Bytes between file and staging.
    uint64_t read_bytes = 0;
    uint64_t written_bytes = 0;
    // Pins of units that were in memory, and of others.
    uint64_t hits = 0;
    uint64_t misses = 0;
    // Time that pins of units waited for the disk or for room.
    absl::Duration waited;
    // Time with at least one read, or write, of a unit, and of a sum: both may overlap.
    absl::Duration read_time;
    absl::Duration write_time;
    // Time since the tier was made.
    absl::Duration age;
  };

  // Each unit is in one of `files`, one or more. `backend` computes on host memory and allocates
  // staging. Units and sums use at most `staging_bytes` of it. All outlive the tier. The first
  // error of a disk calls `on_failed`, on any thread; null: only later calls tell it.
  NvmeTier(absl::Span<disk::BlockFile* const> files, kernels::Backend& backend,
           uint64_t staging_bytes,
           std::function<void(const absl::Status& status)> on_failed = nullptr);
  // CHECKs that no pin is left. Blocks until the disk is done.
  ~NvmeTier() override;

  // Adds a unit of zeros. RESOURCE_EXHAUSTED with the arithmetic if the file or staging is too
  // small for it. Staging must hold it twice, so that one is updated while another is written.
  // Staging has room for `state_bytes` too. `state_in_memory` is not in the file, and outlives it.
  absl::StatusOr<UnitId> Add(const std::string& name, uint64_t weight_bytes,
                             const std::vector<uint64_t>& state_bytes,
                             std::vector<kernels::Region> state_in_memory = {});
  // Blocks while the disk, or a reader, uses the unit, which is not pinned.
  void Remove(UnitId unit) override;
  // Removes all units, none of which is pinned.
  void Clear();

  // Reads `units` as far as staging has room, in this order, which is that of the next pins. The
  // order replaces an earlier one.
  void Prefetch(absl::Span<const UnitId> units) override;

  // Pins block until the unit is in memory. Any failure of the disk is an error of the device
  // (disk/device_error.h), of this call and of all later ones; it names the unit. A thread that
  // holds pins must not wait for more than staging has room for, nor for a unit that it has pinned
  // itself.

  absl::StatusOr<UnitReadPin> Pin(UnitId unit) override;
  // Pins the newest version and memory for the next one. One caller at a time may update a unit,
  // and nobody may read its older version then.
  absl::StatusOr<UnitUpdatePin> PinForUpdate(UnitId unit) override;
  // The pinned units take at most half of staging: the disk has the other half.
  size_t NumPinnable(absl::Span<const UnitId> units) const override;

  // Copies bytes of a tensor of the newest version, or of the one before, without a place in
  // staging. `tensor` is 0 for weights, 1 for the first state. Blocks. Errors as of pins.
  absl::Status Read(UnitId unit, int version, size_t tensor, uint64_t offset,
                    absl::Span<std::byte> to) override;
  int newest(UnitId unit) const override;
  int next(UnitId unit) const override { return 1 - newest(unit); }
  kernels::ConstRegion Memory(UnitId unit, int version, size_t tensor) const override;
  absl::string_view name() const override { return "nvme"; }

  // Blocks until everything committed is in the file; nobody may update meanwhile. It is durable
  // after BlockFile::Sync.
  absl::Status Flush();

  // Memory for the sums of gradients of these parameters: a quarter of staging. Clear leaves it.
  SwappedMemory& sums() { return sums_; }
  // Bytes and times include the sums.
  Counters counters() const;
  uint64_t used_bytes() const { return space_.used_bytes(); }
  uint64_t capacity_bytes() const { return space_.capacity_bytes(); }
  uint64_t staging_bytes() const { return staging_bytes_; }
  std::string paths() const { return space_.paths(); }

 private:
  using Phase = NvmeUnit::Phase;
  using Unit = NvmeUnit;
  // One read or write that the file gets once the lock is released.
  struct Transfer {
    UnitId unit = 0;
    disk::BlockFile* file = nullptr;
    bool is_write = false;
    int version = 0;
    uint64_t offset = 0;
    absl::Span<std::byte> memory;
  };

  absl::Status AwaitLocked(UnitId id, bool for_update) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts to read the unit; false: no room.
  absl::StatusOr<bool> StartReadLocked(UnitId id, bool evict_prefetched)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PrefetchLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Releases the memory of the unit that is needed last; false: all are in use.
  bool EvictOneLocked(bool evict_prefetched) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FreeLocked(Unit& unit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Queues the transfer of the newest version.
  void QueueLocked(UnitId id, bool is_write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Call it after each change of a unit: makes it evictable, or not.
  void NoteUseLocked(UnitId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Unpin(UnitId id) override;
  void EndUpdate(UnitId id, bool commit) override;
  // Passes queued transfers to the file. Call it without the lock.
  void StartTransfers();
  void OnDone(const Transfer& transfer, const absl::Status& status);
  // Keeps the first error of a disk. Call it without the lock.
  void Fail(const absl::Status& status);
  absl::Status CheckRead(const Transfer& transfer);
  absl::Status ReadFile(const Unit& unit, int version, uint64_t offset, absl::Span<std::byte> to);

  kernels::Backend& backend_;
  const std::function<void(const absl::Status& status)> on_failed_;
  const absl::Time made_;
  const uint64_t staging_bytes_;
  FileSpace space_;
  SwappedMemory sums_;

  mutable Mutex mu_;
  // Signaled after each transfer and each pin.
  CondVar changed_;
  StagingPool staging_ ABSL_GUARDED_BY(mu_);
  std::deque<Unit> units_ ABSL_GUARDED_BY(mu_);
  std::deque<UnitId> upcoming_ ABSL_GUARDED_BY(mu_);
  // Unused units by last use. Evicted from the front, before any of prefetched_.
  std::map<uint64_t, UnitId> evictable_ ABSL_GUARDED_BY(mu_);
  // Unused units in the order of the next pins. Evicted from the back.
  std::map<uint64_t, UnitId> prefetched_ ABSL_GUARDED_BY(mu_);
  uint64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Transfer> queued_ ABSL_GUARDED_BY(mu_);
  int transfers_ ABSL_GUARDED_BY(mu_) = 0;
  // Pins that found no room.
  int waiting_for_room_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  Counters counters_ ABSL_GUARDED_BY(mu_);
  BusyTime reads_ ABSL_GUARDED_BY(mu_);
  BusyTime writes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_NVME_TIER_H_
