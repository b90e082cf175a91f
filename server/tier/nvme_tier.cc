#include "server/tier/nvme_tier.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
#include "proto/status_macros.h"
#include "server/disk/completion.h"
#include "server/disk/device_error.h"
#include "server/mutation/mutation.h"
#include "server/tier/unit_error.h"

namespace kaon::tier {

namespace {

// Bytes that a read without a place in staging holds at once.
constexpr uint64_t kReadBytes = uint64_t{1} << 20;

// Returns the part of staging for the sums of gradients, which must hold the largest one twice.
uint64_t SumBytes(uint64_t staging_bytes) {
  return staging_bytes / 4 / disk::kBlockBytes * disk::kBlockBytes;
}

}  // namespace

NvmeTier::NvmeTier(absl::Span<disk::BlockFile* const> files, kernels::Backend& backend,
                   uint64_t staging_bytes,
                   std::function<void(const absl::Status& status)> on_failed)
    : backend_(backend),
      on_failed_(std::move(on_failed)),
      made_(SteadyNow()),
      staging_bytes_(staging_bytes),
      space_(files),
      sums_(space_, SumBytes(staging_bytes), [this](const absl::Status& status) { Fail(status); }),
      staging_(backend, staging_bytes - SumBytes(staging_bytes)) {
  CHECK(backend.space() == kernels::Space::kHost);
}

NvmeTier::~NvmeTier() {
  Clear();
  // A transfer of it may call Fail.
  sums_.Clear();
}

absl::StatusOr<UnitId> NvmeTier::Add(const std::string& name, uint64_t weight_bytes,
                                     const std::vector<uint64_t>& state_bytes,
                                     std::vector<kernels::Region> state_in_memory) {
  Unit unit;
  unit.layout = UnitLayout(weight_bytes, state_bytes);
  unit.state_in_memory = std::move(state_in_memory);
  unit.name = name;
  const uint64_t bytes = 2 * unit.layout.version_bytes();
  const uint64_t memory_bytes = UnitMemory::BytesFor(unit.layout.memory_bytes());
  MutexLock lock(mu_);
  if (2 * memory_bytes > staging_.most_bytes()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "it takes ", memory_bytes, " bytes of memory, and three quarters of ", staging_bytes_,
        " bytes of staging must hold it twice; raise "
        "--nvme-staging-bytes to ",
        std::max(disk::RoundUpToBlocks(memory_bytes * 8 / 3),
                 8 * disk::RoundUpToBlocks(weight_bytes))));
  }
  KAON_ASSIGN_OR_RETURN(unit.place, space_.Allocate(bytes, "its two versions take"));
  units_.push_back(std::move(unit));
  return units_.size() - 1;
}

void NvmeTier::FreeLocked(Unit& unit) {
  CHECK(unit.readers == 0 && !unit.is_updated) << "unit " << unit.name << " is still pinned";
  if (!unit.memory.bytes().empty()) staging_.Release(std::exchange(unit.memory, UnitMemory()));
  const uint64_t bytes = 2 * unit.layout.version_bytes();
  if (bytes > 0) space_.Free(unit.place, bytes);
  unit = Unit();
}

void NvmeTier::Remove(UnitId id) {
  MutexLock lock(mu_);
  Unit& unit = units_.at(id);
  const auto queued = std::find(upcoming_.begin(), upcoming_.end(), id);
  if (queued != upcoming_.end()) upcoming_.erase(queued);
  while (unit.phase == Phase::kReading || unit.phase == Phase::kWriting || unit.readers > 0 ||
         unit.file_readers[0] + unit.file_readers[1] > 0) {
    changed_.Wait(mu_);
  }
  evictable_.erase(unit.last_use);
  prefetched_.erase(unit.prefetch_order);
  FreeLocked(unit);
}

void NvmeTier::Clear() {
  MutexLock lock(mu_);
  upcoming_.clear();
  while (transfers_ > 0) changed_.Wait(mu_);
  for (Unit& unit : units_) FreeLocked(unit);
  units_.clear();
  evictable_.clear();
  prefetched_.clear();
}

void NvmeTier::Prefetch(absl::Span<const UnitId> units) {
  {
    MutexLock lock(mu_);
    upcoming_.assign(units.begin(), units.end());
    for (const auto& [order, id] : prefetched_) evictable_.emplace(units_[id].last_use, id);
    prefetched_.clear();
    for (Unit& unit : units_) unit.is_prefetched = false;
    PrefetchLocked();
  }
  StartTransfers();
}

void NvmeTier::PrefetchLocked() {
  // Pins get room first.
  while (!upcoming_.empty() && failed_.ok() && waiting_for_room_ == 0) {
    const UnitId id = upcoming_.front();
    CHECK_LT(id, units_.size());
    if (units_[id].phase == Phase::kOnDisk) {
      const absl::StatusOr<bool> started = StartReadLocked(id, false);
      // A pin meets the same error, and returns it.
      if (!started.value_or(false)) return;
    }
    prefetched_.erase(units_[id].prefetch_order);
    units_[id].is_prefetched = true;
    units_[id].prefetch_order = ++uses_;
    NoteUseLocked(id);
    upcoming_.pop_front();
  }
}

// An unused unit may be evicted; the prefetched ones last.
void NvmeTier::NoteUseLocked(UnitId id) {
  Unit& unit = units_[id];
  evictable_.erase(unit.last_use);
  prefetched_.erase(unit.prefetch_order);
  unit.last_use = ++uses_;
  if (unit.phase != Phase::kReady || unit.readers > 0 || unit.is_updated) return;
  // Its pin has not woken up yet.
  if (unit.awaiting > 0) return;
  if (unit.is_prefetched) {
    prefetched_.emplace(unit.prefetch_order, id);
  } else {
    evictable_.emplace(unit.last_use, id);
  }
}

bool NvmeTier::EvictOneLocked(bool evict_prefetched) {
  UnitId id = 0;
  if (!evictable_.empty()) {
    id = evictable_.begin()->second;
  } else if (evict_prefetched && !prefetched_.empty()) {
    // The one that is needed last.
    id = prefetched_.rbegin()->second;
  } else {
    return false;
  }
  Unit& unit = units_[id];
  evictable_.erase(unit.last_use);
  prefetched_.erase(unit.prefetch_order);
  unit.phase = Phase::kOnDisk;
  unit.is_prefetched = false;
  staging_.Release(std::exchange(unit.memory, UnitMemory()));
  return true;
}

absl::StatusOr<bool> NvmeTier::StartReadLocked(UnitId id, bool evict_prefetched) {
  Unit& unit = units_[id];
  std::optional<UnitMemory> memory;
  while (true) {
    KAON_ASSIGN_OR_RETURN(memory, staging_.Allocate(unit.layout.memory_bytes()));
    if (memory.has_value()) break;
    if (!EvictOneLocked(evict_prefetched)) return false;
  }
  unit.memory = *std::move(memory);
  unit.has_older = false;
  const absl::Span<std::byte> bytes = unit.memory.bytes();
  if (unit.num_versions == 0 && !Mutated(Mutation::kStaleFileRead)) {
    std::memset(bytes.data(), 0, bytes.size());
    unit.phase = Phase::kReady;
    return true;
  }
  unit.phase = Phase::kReading;
  QueueLocked(id, /*is_write=*/false);
  return true;
}

void NvmeTier::QueueLocked(UnitId id, bool is_write) {
  const Unit& unit = units_[id];
  const uint64_t place = unit.layout.version_in_memory(unit.newest);
  const bool other =
      Mutated(is_write ? Mutation::kOtherVersionWritten : Mutation::kOlderVersionRead);
  const int version = other ? 1 - unit.newest : unit.newest;
  queued_.push_back({id, unit.place.file, is_write, version, unit.OffsetOf(version),
                     unit.memory.bytes().subspan(place, unit.layout.version_bytes())});
  ++transfers_;
  (is_write ? writes_ : reads_).Start();
}

absl::Status NvmeTier::AwaitLocked(UnitId id, bool for_update) {
  CHECK_LT(id, units_.size());
  Unit& unit = units_[id];
  const auto is_ready = [&] {
    const bool is_readable = unit.phase == Phase::kReady || unit.phase == Phase::kWriting;
    // State is changed in place: neither the disk nor a reader may use it meanwhile.
    return for_update ? unit.phase == Phase::kReady && unit.readers == 0 &&
                            unit.file_readers[1 - unit.newest] == 0
                      : is_readable && !unit.is_updated;
  };
  CHECK(!for_update || !unit.is_updated) << "unit " << unit.name << " is updated twice at once";
  const bool is_hit = unit.phase != Phase::kOnDisk && unit.phase != Phase::kReading;
  ++(is_hit ? counters_.hits : counters_.misses);
  const absl::Time start = SteadyNow();
  ++unit.awaiting;
  absl::Status status;
  while (status.ok() && failed_.ok() && !is_ready()) {
    if (unit.phase == Phase::kOnDisk) {
      const absl::StatusOr<bool> started = StartReadLocked(id, true);
      status = started.status();
      if (started.value_or(true)) {
        mu_.Unlock();
        StartTransfers();
        mu_.Lock();
        continue;
      }
      ++waiting_for_room_;
      changed_.Wait(mu_);
      --waiting_for_room_;
    } else {
      changed_.Wait(mu_);
    }
  }
  --unit.awaiting;
  counters_.waited += SteadyNow() - start;
  // A unit that was prefetched has left the queue.
  if (!std::exchange(unit.is_prefetched, false)) {
    const auto queued = std::find(upcoming_.begin(), upcoming_.end(), id);
    if (queued != upcoming_.end()) upcoming_.erase(queued);
  }
  NoteUseLocked(id);
  status.Update(failed_);
  return status;
}

absl::StatusOr<UnitReadPin> NvmeTier::Pin(UnitId id) {
  MutexLock lock(mu_);
  KAON_RETURN_IF_ERROR(AwaitLocked(id, false));
  Unit& unit = units_[id];
  ++unit.readers;
  NoteUseLocked(id);
  return UnitReadPin(*this, id, unit.Tensors());
}

absl::StatusOr<UnitUpdatePin> NvmeTier::PinForUpdate(UnitId id) {
  MutexLock lock(mu_);
  KAON_RETURN_IF_ERROR(AwaitLocked(id, true));
  Unit& unit = units_[id];
  unit.is_updated = true;
  unit.has_older = false;
  NoteUseLocked(id);
  return UnitUpdatePin(*this, id, unit.Tensors());
}

size_t NvmeTier::NumPinnable(absl::Span<const UnitId> units) const {
  MutexLock lock(mu_);
  size_t count = 0;
  uint64_t bytes = 0;
  for (const UnitId id : units) {
    bytes += UnitMemory::BytesFor(units_.at(id).layout.memory_bytes());
    if (count > 0 && bytes > staging_.most_bytes() / 2) break;
    ++count;
  }
  return count;
}

void NvmeTier::Unpin(UnitId id) {
  {
    MutexLock lock(mu_);
    --units_[id].readers;
    NoteUseLocked(id);
    PrefetchLocked();
    changed_.NotifyAll();
  }
  StartTransfers();
}

void NvmeTier::EndUpdate(UnitId id, bool commit) {
  {
    MutexLock lock(mu_);
    Unit& unit = units_[id];
    // Read may still copy the newest weights out of this memory.
    while (!commit && unit.readers > 0) changed_.Wait(mu_);
    unit.is_updated = false;
    if (commit) {
      if (!Mutated(Mutation::kCommitForgotten)) unit.newest = 1 - unit.newest;
      unit.num_versions = std::min(unit.num_versions + 1, 2);
      unit.has_older = true;
      unit.phase = Mutated(Mutation::kUnwrittenEvicted) ? Phase::kReady : Phase::kWriting;
      if (unit.phase == Phase::kWriting) QueueLocked(id, /*is_write=*/true);
      NoteUseLocked(id);
    } else {
      // State may be changed. The file has the version.
      unit.phase = Phase::kOnDisk;
      staging_.Release(std::exchange(unit.memory, UnitMemory()));
    }
    PrefetchLocked();
    changed_.NotifyAll();
  }
  StartTransfers();
}

void NvmeTier::StartTransfers() {
  while (true) {
    Transfer transfer;
    {
      MutexLock lock(mu_);
      if (queued_.empty()) return;
      transfer = queued_.front();
      queued_.pop_front();
    }
    const auto done = [this, transfer](const absl::Status& status) { OnDone(transfer, status); };
    if (transfer.is_write) {
      FileSums sums(transfer.memory);
      MutexLock lock(mu_);
      units_[transfer.unit].sums[transfer.version] = std::move(sums);
    }
    if (transfer.is_write) {
      transfer.file->Write(transfer.offset, transfer.memory, done);
    } else {
      transfer.file->Read(transfer.offset, transfer.memory, done);
    }
  }
}

void NvmeTier::Fail(const absl::Status& status) {
  {
    MutexLock lock(mu_);
    if (!failed_.ok()) return;
    failed_ = status;
    changed_.NotifyAll();
  }
  if (on_failed_) on_failed_(status);
}

absl::Status NvmeTier::CheckRead(const Transfer& transfer) {
  FileSums sums;
  {
    MutexLock lock(mu_);
    sums = units_[transfer.unit].sums[transfer.version];
  }
  return sums.Check(0, transfer.memory);
}

void NvmeTier::OnDone(const Transfer& transfer, const absl::Status& status) {
  absl::Status failed = status;
  if (failed.ok() && !transfer.is_write) failed = CheckRead(transfer);
  {
    MutexLock lock(mu_);
    Unit& unit = units_[transfer.unit];
    unit.phase = Phase::kReady;
    if (!failed.ok()) failed = AboutUnit(unit.name, failed);
    (transfer.is_write ? counters_.written_bytes : counters_.read_bytes) += transfer.memory.size();
    NoteUseLocked(transfer.unit);
    PrefetchLocked();
  }
  if (!failed.ok()) Fail(failed);
  StartTransfers();
  MutexLock lock(mu_);
  // Last: Clear may return now, and the tier may end.
  --transfers_;
  (transfer.is_write ? writes_ : reads_).Stop();
  changed_.NotifyAll();
}

absl::Status NvmeTier::Read(UnitId id, int version, size_t tensor, uint64_t offset,
                            absl::Span<std::byte> to) {
  mu_.Lock();
  CHECK_LT(id, units_.size());
  Unit& unit = units_[id];
  const UnitLayout& layout = unit.layout;
  CHECK(tensor < layout.num_tensors() && offset <= layout.size(tensor) &&
        to.size() <= layout.size(tensor) - offset)
      << "unit " << unit.name << " tensor " << tensor << ": " << to.size() << " from " << offset;
  while (failed_.ok() && unit.phase == Phase::kReading) changed_.Wait(mu_);
  const bool is_newest = version == unit.newest;
  // An update changes the state and the older weights, and never the newest weights.
  const bool has_it = unit.phase != Phase::kOnDisk &&
                      (is_newest ? tensor == 0 || !unit.is_updated : tensor == 0 && unit.has_older);
  // Versions that were never committed are zeros.
  const bool is_zeros = unit.num_versions < (is_newest ? 1 : 2);
  const absl::Status failed = failed_;
  const uint64_t place = layout.in_memory(version, tensor) + offset;
  const std::byte* const memory = unit.memory.bytes().data();
  const bool reads_file = failed.ok() && !has_it && !is_zeros;
  if (failed.ok() && has_it) ++unit.readers;
  if (reads_file) {
    ++unit.file_readers[version];
    reads_.Start();
  }
  NoteUseLocked(id);
  mu_.Unlock();
  if (!failed.ok()) return failed;
  if (has_it) {
    std::memcpy(to.data(), memory + place, to.size());
    Unpin(id);
    return absl::OkStatus();
  }
  if (is_zeros) {
    std::memset(to.data(), 0, to.size());
    return absl::OkStatus();
  }
  const absl::Status status =
      ReadFile(unit, version, place - layout.version_in_memory(version), to);
  if (disk::IsDeviceError(status)) Fail(status);
  MutexLock lock(mu_);
  --unit.file_readers[version];
  reads_.Stop();
  changed_.NotifyAll();
  return status;
}

absl::Status NvmeTier::ReadFile(const Unit& unit, int version, uint64_t offset,
                                absl::Span<std::byte> to) {
  FileSums sums;
  {
    MutexLock lock(mu_);
    sums = unit.sums[version];
  }
  const uint64_t all = unit.layout.version_bytes();
  const uint64_t most = std::min(all, kReadBytes);
  KAON_ASSIGN_OR_RETURN(const UnitMemory memory, UnitMemory::Allocate(backend_, most));
  while (!to.empty()) {
    // Whole pieces, which have checksums.
    const uint64_t begin = offset / FileSums::kPieceBytes * FileSums::kPieceBytes;
    const uint64_t past = offset - begin;
    const uint64_t needed = (past + to.size() + FileSums::kPieceBytes - 1) / FileSums::kPieceBytes *
                            FileSums::kPieceBytes;
    const absl::Span<std::byte> read = memory.bytes().first(std::min({needed, most, all - begin}));
    disk::Completion done;
    unit.place.file->Read(unit.OffsetOf(version) + begin, read, done.Callback());
    absl::Status status = done.Wait();
    if (status.ok()) status = sums.Check(begin, read);
    if (!status.ok()) return AboutUnit(unit.name, status);
    const uint64_t count = std::min<uint64_t>(to.size(), read.size() - past);
    std::memcpy(to.data(), read.data() + past, count);
    to.remove_prefix(count);
    offset += count;
    MutexLock lock(mu_);
    counters_.read_bytes += read.size();
  }
  return absl::OkStatus();
}

kernels::ConstRegion NvmeTier::Memory(UnitId unit, int /*version*/, size_t tensor) const {
  MutexLock lock(mu_);
  const std::vector<kernels::Region>& state = units_.at(unit).state_in_memory;
  return tensor == 0 || state.empty() ? kernels::ConstRegion() : state.at(tensor - 1);
}

int NvmeTier::newest(UnitId unit) const {
  MutexLock lock(mu_);
  return units_.at(unit).newest;
}

absl::Status NvmeTier::Flush() {
  MutexLock lock(mu_);
  while (writes_.in_progress() > 0) changed_.Wait(mu_);
  return failed_;
}

NvmeTier::Counters NvmeTier::counters() const {
  const SwappedMemory::Counters sums = sums_.counters();
  MutexLock lock(mu_);
  Counters counters = counters_;
  counters.read_bytes += sums.read_bytes;
  counters.written_bytes += sums.written_bytes;
  counters.read_time = reads_.total() + sums.read_time;
  counters.write_time = writes_.total() + sums.write_time;
  counters.age = SteadyNow() - made_;
  return counters;
}

}  // namespace kaon::tier
