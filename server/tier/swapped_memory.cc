#include "server/tier/swapped_memory.h"

#include <glog/logging.h>
#include <sys/mman.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/mutation/mutation.h"
#include "server/tier/unit_error.h"

namespace kaon::tier {

SwappedMemory::SwappedMemory(FileSpace& space, uint64_t most_bytes,
                             std::function<void(const absl::Status& status)> on_failed)
    : space_(space), most_bytes_(most_bytes), on_failed_(std::move(on_failed)) {}

SwappedMemory::~SwappedMemory() { Clear(); }

absl::StatusOr<SwappedMemory::ExtentId> SwappedMemory::Add(const std::string& name,
                                                           uint64_t bytes) {
  const uint64_t padded = disk::RoundUpToBlocks(bytes);
  // Otherwise a sum that is folded and one that is journaled would evict each other again and
  // again.
  if (2 * padded > most_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the sum of its gradients takes ", padded, " bytes of memory, and ", most_bytes_,
        " of staging are for sums and must hold it twice; raise --nvme-staging-bytes to ",
        8 * padded));
  }
  Extent extent;
  extent.name = name;
  KAON_ASSIGN_OR_RETURN(extent.place, space_.Allocate(padded, "the sum of its gradients takes"));
  // A touch without a pin is a fault. Pages of 4 KiB: larger ones would belong to two extents.
  void* const memory =
      mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    space_.Free(extent.place, padded);
    return absl::ResourceExhaustedError(absl::StrCat(
        "no address space for ", padded,
        " bytes of the sum of its gradients; raise the limit of virtual memory (ulimit -v)"));
  }
  madvise(memory, padded, MADV_NOHUGEPAGE);
  extent.memory = {static_cast<std::byte*>(memory), padded};
  MutexLock lock(mu_);
  extents_.push_back(std::move(extent));
  return extents_.size() - 1;
}

void SwappedMemory::FreeLocked(Extent& extent) {
  CHECK(extent.pins == 0) << "extent " << extent.name << " is still pinned";
  const uint64_t bytes = extent.memory.size();
  if (bytes == 0) return;
  if (extent.phase == Phase::kIn) used_bytes_ -= bytes;
  munmap(extent.memory.data(), bytes);
  space_.Free(extent.place, bytes);
  extent = Extent();
}

void SwappedMemory::Remove(ExtentId id) {
  MutexLock lock(mu_);
  Extent& extent = extents_.at(id);
  const auto queued = std::find(upcoming_.begin(), upcoming_.end(), id);
  if (queued != upcoming_.end()) upcoming_.erase(queued);
  while (extent.phase == Phase::kReading || extent.phase == Phase::kWriting) changed_.Wait(mu_);
  FreeLocked(extent);
  // Later extents get these numbers.
  while (!extents_.empty() && extents_.back().memory.empty()) extents_.pop_back();
  changed_.NotifyAll();
}

void SwappedMemory::Clear() {
  MutexLock lock(mu_);
  upcoming_.clear();
  while (transfers_ > 0) changed_.Wait(mu_);
  for (Extent& extent : extents_) FreeLocked(extent);
  extents_.clear();
}

kernels::Region SwappedMemory::region(ExtentId id) const {
  MutexLock lock(mu_);
  return kernels::Region(extents_.at(id).memory);
}

absl::StatusOr<PageHold> SwappedMemory::Pin(ExtentId id, bool for_write) {
  MutexLock lock(mu_);
  Extent& extent = extents_.at(id);
  ++extent.awaiting;
  while (failed_.ok() && extent.phase != Phase::kIn) {
    if (extent.phase == Phase::kOut && TakeRoomLocked(extent, true)) {
      extent.phase = Phase::kIn;
      if (extent.is_in_file) QueueLocked(id, /*is_write=*/false);
    }
    if (!queued_.empty()) {
      mu_.Unlock();
      StartTransfers();
      mu_.Lock();
    } else if (extent.phase == Phase::kOut) {
      ++waiting_for_room_;
      changed_.Wait(mu_);
      --waiting_for_room_;
    } else if (extent.phase != Phase::kIn) {
      changed_.Wait(mu_);
    }
  }
  --extent.awaiting;
  KAON_RETURN_IF_ERROR(failed_);
  CHECK(for_write || extent.has_contents) << "extent " << extent.name << " is read before a write";
  ++extent.pins;
  extent.last_use = ++uses_;
  extent.is_prefetched = false;
  if (for_write) {
    ++extent.changes;
    extent.has_contents = true;
    extent.is_in_file = false;
  }
  return PageHold(extent.memory.data(), [this, id](const void*) { Unpin(id); });
}

void SwappedMemory::Unpin(ExtentId id) {
  {
    MutexLock lock(mu_);
    Extent& extent = extents_[id];
    --extent.pins;
    extent.last_use = ++uses_;
    PrefetchLocked();
    changed_.NotifyAll();
  }
  StartTransfers();
}

std::optional<SwappedMemory::ExtentId> SwappedMemory::VictimLocked(bool evict_prefetched) {
  std::optional<ExtentId> victim;
  // Extents without contents go first, and those that are pinned next go last.
  const auto key = [](const Extent& one) {
    return std::make_tuple(one.has_contents, one.is_prefetched,
                           one.is_prefetched ? -one.last_use : one.last_use);
  };
  for (ExtentId id = 0; id < extents_.size(); ++id) {
    const Extent& extent = extents_[id];
    if (extent.phase != Phase::kIn || extent.pins > 0 || extent.awaiting > 0) continue;
    if (extent.has_contents && !evict_prefetched) continue;
    if (!victim.has_value() || key(extent) < key(extents_[*victim])) victim = id;
  }
  return victim;
}

bool SwappedMemory::TakeRoomLocked(const Extent& extent, bool evict_prefetched) {
  const uint64_t bytes = extent.memory.size();
  while (used_bytes_ + bytes > most_bytes_) {
    // Enough of it is about to leave.
    if (used_bytes_ - leaving_bytes_ + bytes <= most_bytes_) return false;
    const std::optional<ExtentId> victim = VictimLocked(evict_prefetched);
    if (!victim.has_value()) return false;
    Extent& evicted = extents_[*victim];
    const bool is_lost = Mutated(Mutation::kSumNotSwapped);
    if (evicted.has_contents && !evicted.is_in_file && !is_lost) {
      leaving_bytes_ += evicted.memory.size();
      QueueLocked(*victim, /*is_write=*/true);
      continue;
    }
    evicted.phase = Phase::kOut;
    evicted.is_prefetched = false;
    used_bytes_ -= evicted.memory.size();
    CHECK_EQ(madvise(evicted.memory.data(), evicted.memory.size(), MADV_DONTNEED), 0);
    CHECK_EQ(mprotect(evicted.memory.data(), evicted.memory.size(), PROT_NONE), 0);
  }
  CHECK_EQ(mprotect(extent.memory.data(), bytes, PROT_READ | PROT_WRITE), 0)
      << "extent " << extent.name;
  used_bytes_ += bytes;
  return true;
}

void SwappedMemory::QueueLocked(ExtentId id, bool is_write) {
  Extent& extent = extents_[id];
  extent.phase = is_write ? Phase::kWriting : Phase::kReading;
  queued_.push_back({id, is_write, extent.changes});
  ++transfers_;
  (is_write ? writes_ : reads_).Start();
}

void SwappedMemory::Discard(ExtentId id) {
  {
    MutexLock lock(mu_);
    Extent& extent = extents_.at(id);
    ++extent.changes;
    extent.has_contents = false;
    extent.is_in_file = false;
    PrefetchLocked();
    changed_.NotifyAll();
  }
  StartTransfers();
}

void SwappedMemory::Prefetch(absl::Span<const ExtentId> ids) {
  {
    MutexLock lock(mu_);
    upcoming_.assign(ids.begin(), ids.end());
    for (Extent& extent : extents_) extent.is_prefetched = false;
    PrefetchLocked();
  }
  StartTransfers();
}

void SwappedMemory::PrefetchLocked() {
  // Pins get room first.
  while (!upcoming_.empty() && failed_.ok() && waiting_for_room_ == 0) {
    const ExtentId id = upcoming_.front();
    Extent& extent = extents_.at(id);
    if (extent.phase == Phase::kOut && extent.is_in_file) {
      if (!TakeRoomLocked(extent, false)) return;
      QueueLocked(id, /*is_write=*/false);
    }
    extent.is_prefetched = true;
    extent.last_use = ++uses_;
    upcoming_.pop_front();
  }
}

void SwappedMemory::StartTransfers() {
  while (true) {
    Transfer transfer;
    absl::Span<std::byte> memory;
    FileSpace::Place place;
    {
      MutexLock lock(mu_);
      if (queued_.empty()) return;
      transfer = queued_.front();
      queued_.pop_front();
      memory = extents_[transfer.id].memory;
      place = extents_[transfer.id].place;
    }
    const auto done = [this, transfer](absl::Status status) {
      OnDone(transfer, std::move(status));
    };
    if (!transfer.is_write) {
      place.file->Read(place.offset, memory, done);
      continue;
    }
    FileSums sums(memory);
    {
      MutexLock lock(mu_);
      extents_[transfer.id].sums = std::move(sums);
    }
    place.file->Write(place.offset, memory, done);
  }
}

void SwappedMemory::OnDone(const Transfer& transfer, absl::Status status) {
  absl::Span<const std::byte> memory;
  FileSums sums;
  std::string name;
  {
    MutexLock lock(mu_);
    const Extent& extent = extents_[transfer.id];
    memory = extent.memory;
    name = extent.name;
    if (!transfer.is_write) sums = extent.sums;
  }
  if (status.ok() && !transfer.is_write) status = sums.Check(0, memory);
  if (!status.ok()) status = AboutUnit(absl::StrCat(name, ", its sum"), status);
  bool is_first = false;
  {
    MutexLock lock(mu_);
    Extent& extent = extents_[transfer.id];
    extent.phase = Phase::kIn;
    if (transfer.is_write) {
      leaving_bytes_ -= memory.size();
      extent.is_in_file = status.ok() && extent.changes == transfer.changes;
    }
    (transfer.is_write ? counters_.written_bytes : counters_.read_bytes) += memory.size();
    is_first = !status.ok() && failed_.ok();
    if (is_first) failed_ = status;
    PrefetchLocked();
  }
  if (is_first && on_failed_) on_failed_(status);
  StartTransfers();
  MutexLock lock(mu_);
  // Last: Clear may return now, and this object may end.
  --transfers_;
  (transfer.is_write ? writes_ : reads_).Stop();
  changed_.NotifyAll();
}

size_t SwappedMemory::NumPinnable(absl::Span<const ExtentId> ids) const {
  MutexLock lock(mu_);
  uint64_t bytes = 0;
  size_t count = 0;
  for (const ExtentId id : ids) {
    bytes += extents_.at(id).memory.size();
    if (count > 0 && bytes > most_bytes_ / 2) break;
    ++count;
  }
  return count;
}

SwappedMemory::Counters SwappedMemory::counters() const {
  MutexLock lock(mu_);
  Counters counters = counters_;
  counters.read_time = reads_.total();
  counters.write_time = writes_.total();
  return counters;
}

}  // namespace kaon::tier
