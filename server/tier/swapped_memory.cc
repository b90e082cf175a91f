#include "server/tier/swapped_memory.h"

#include <glog/logging.h>
#include <sys/mman.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
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
  if (padded > most_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the sum of its gradients takes ", padded, " bytes of memory, and ",
                     most_bytes_, " of staging are for sums; raise --nvme-staging-bytes"));
  }
  Extent extent;
  extent.name = name;
  KAON_ASSIGN_OR_RETURN(extent.place, space_.Allocate(padded, "the sum of its gradients takes"));
  // Pages come with the first access, and go at eviction.
  void* const memory = mmap(nullptr, padded, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    space_.Free(padded);
    return absl::ResourceExhaustedError(absl::StrCat(
        "no address space for ", padded,
        " bytes of the sum of its gradients; raise the limit of virtual memory (ulimit -v)"));
  }
  extent.memory = {static_cast<std::byte*>(memory), padded};
  MutexLock lock(mu_);
  extents_.push_back(std::move(extent));
  return extents_.size() - 1;
}

void SwappedMemory::Clear() {
  MutexLock lock(mu_);
  upcoming_.clear();
  while (transfers_ > 0) changed_.Wait(mu_);
  for (const Extent& extent : extents_) {
    CHECK(extent.pins == 0) << "extent " << extent.name << " is still pinned";
    munmap(extent.memory.data(), extent.memory.size());
    space_.Free(extent.memory.size());
  }
  extents_.clear();
  used_bytes_ = 0;
}

kernels::Region SwappedMemory::region(ExtentId id) const {
  MutexLock lock(mu_);
  return kernels::Region(extents_.at(id).memory);
}

absl::StatusOr<PageHold> SwappedMemory::Pin(ExtentId id, bool for_write) {
  MutexLock lock(mu_);
  Extent& extent = extents_.at(id);
  const absl::Time start = SteadyNow();
  ++extent.awaiting;
  while (failed_.ok() && extent.phase != Phase::kIn) {
    if (extent.phase == Phase::kOut && TakeRoomLocked(extent, true)) {
      extent.phase = Phase::kIn;
      if (extent.is_in_file) QueueLocked(extent, /*is_write=*/false);
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
  counters_.waited += SteadyNow() - start;
  KAON_RETURN_IF_ERROR(failed_);
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

SwappedMemory::Extent* SwappedMemory::VictimLocked(bool evict_prefetched) {
  Extent* victim = nullptr;
  // Extents without contents go first, and those that are pinned next go last.
  const auto key = [](const Extent& one) {
    return std::make_tuple(one.has_contents, one.is_prefetched,
                           one.is_prefetched ? -one.last_use : one.last_use);
  };
  for (Extent& extent : extents_) {
    if (extent.phase != Phase::kIn || extent.pins > 0 || extent.awaiting > 0) continue;
    if (extent.has_contents && !evict_prefetched) continue;
    if (victim == nullptr || key(extent) < key(*victim)) victim = &extent;
  }
  return victim;
}

bool SwappedMemory::TakeRoomLocked(const Extent& extent, bool evict_prefetched) {
  const uint64_t bytes = extent.memory.size();
  while (used_bytes_ + bytes > most_bytes_) {
    // Enough of it is about to leave.
    if (used_bytes_ - leaving_bytes_ + bytes <= most_bytes_) return false;
    Extent* const victim = VictimLocked(evict_prefetched);
    if (victim == nullptr) return false;
    const bool is_lost = Mutated(Mutation::kSumNotSwapped);
    if (victim->has_contents && !victim->is_in_file && !is_lost) {
      leaving_bytes_ += victim->memory.size();
      QueueLocked(*victim, /*is_write=*/true);
      continue;
    }
    victim->phase = Phase::kOut;
    victim->is_prefetched = false;
    used_bytes_ -= victim->memory.size();
    CHECK_EQ(madvise(victim->memory.data(), victim->memory.size(), MADV_DONTNEED), 0);
  }
  used_bytes_ += bytes;
  return true;
}

void SwappedMemory::QueueLocked(Extent& extent, bool is_write) {
  extent.phase = is_write ? Phase::kWriting : Phase::kReading;
  const auto place = std::find_if(extents_.begin(), extents_.end(),
                                  [&extent](const Extent& one) { return &one == &extent; });
  queued_.push_back({static_cast<ExtentId>(place - extents_.begin()), is_write, extent.changes});
  ++transfers_;
  (is_write ? writes_ : reads_).Start();
}

void SwappedMemory::Discard(ExtentId id) {
  MutexLock lock(mu_);
  Extent& extent = extents_.at(id);
  ++extent.changes;
  extent.has_contents = false;
  extent.is_in_file = false;
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
    Extent& extent = extents_.at(upcoming_.front());
    if (extent.phase == Phase::kOut && extent.is_in_file) {
      if (!TakeRoomLocked(extent, false)) return;
      QueueLocked(extent, /*is_write=*/false);
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
    if (count > 0 && bytes > most_bytes_) break;
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
