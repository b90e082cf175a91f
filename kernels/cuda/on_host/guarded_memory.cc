#include "kernels/cuda/on_host/guarded_memory.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "kernels/mutex.h"

namespace kaon::kernels::cuda::on_host {
namespace {

constexpr uint64_t kAlignment = 256;
// Bytes of the guard before an allocation; the one behind is as long or a little longer.
constexpr uint64_t kGuard = 256;
constexpr int kGuardByte = 0xa5;

bool IsFilledWith(const std::byte* from, uint64_t bytes, int value) {
  return std::all_of(from, from + bytes,
                     [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

// The sizes of all allocations of a kind in this process, by their first byte.
struct Allocated {
  Mutex mu;
  std::map<std::string, std::map<uintptr_t, uint64_t>> sizes ABSL_GUARDED_BY(mu);
};

Allocated& OfProcess() {
  // Never destroyed: a device may be destroyed later.
  static Allocated* const allocated = std::make_unique<Allocated>().release();
  return *allocated;
}

uint64_t TotalBytes(uint64_t bytes) {
  return kGuard + (bytes + kAlignment - 1) / kAlignment * kAlignment + kGuard;
}

}  // namespace

GuardedMemory::~GuardedMemory() {
  MutexLock lock(OfProcess().mu);
  for (const auto& [begin, allocation] : allocations_) OfProcess().sizes[kind_].erase(begin);
}

absl::StatusOr<void*> GuardedMemory::Allocate(uint64_t bytes) {
  if (bytes > free_bytes()) {
    return absl::ResourceExhaustedError(absl::StrCat(kind_, ": needs ", bytes, " bytes, ",
                                                     free_bytes(), " of ", capacity_, " are free"));
  }
  const uint64_t total = TotalBytes(bytes);
  Allocation allocation;
  allocation.memory.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, total)));
  allocation.bytes = bytes;
  if (allocation.memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kind_, ": the host has no ", total, " bytes for an allocation of ", bytes));
  }
  std::byte* const begin = allocation.memory.get() + kGuard;
  std::memset(allocation.memory.get(), kGuardByte, total);
  std::memset(begin, kUnwrittenByte, bytes);
  used_ += bytes;
  {
    MutexLock lock(OfProcess().mu);
    OfProcess().sizes[kind_][reinterpret_cast<uintptr_t>(begin)] = bytes;
  }
  allocations_.emplace(reinterpret_cast<uintptr_t>(begin), std::move(allocation));
  return begin;
}

void GuardedMemory::CheckGuards(const Allocation& allocation) const {
  const std::byte* const memory = allocation.memory.get();
  const uint64_t end = kGuard + allocation.bytes;
  CHECK(IsFilledWith(memory, kGuard, kGuardByte))
      << kind_ << ": something wrote before an allocation of " << allocation.bytes << " bytes";
  CHECK(IsFilledWith(memory + end, TotalBytes(allocation.bytes) - end, kGuardByte))
      << kind_ << ": something wrote behind an allocation of " << allocation.bytes << " bytes";
}

void GuardedMemory::Free(void* memory) {
  const auto at = allocations_.find(reinterpret_cast<uintptr_t>(memory));
  CHECK(at != allocations_.end()) << kind_ << ": " << memory
                                  << " is not allocated, or was freed already";
  CheckGuards(at->second);
  std::memset(memory, kUnwrittenByte, at->second.bytes);
  used_ -= at->second.bytes;
  {
    MutexLock lock(OfProcess().mu);
    OfProcess().sizes[kind_].erase(at->first);
  }
  freed_.push_back(std::move(at->second));
  allocations_.erase(at);
}

void GuardedMemory::Reclaim() {
  for (const Allocation& allocation : freed_) {
    CheckGuards(allocation);
    CHECK(IsFilledWith(allocation.memory.get() + kGuard, allocation.bytes, kUnwrittenByte))
        << kind_ << ": something wrote a freed allocation of " << allocation.bytes << " bytes";
  }
  freed_.clear();
}

void GuardedMemory::CheckInside(const void* at, uint64_t bytes, const char* what) const {
  const auto address = reinterpret_cast<uintptr_t>(at);
  MutexLock lock(OfProcess().mu);
  const std::map<uintptr_t, uint64_t>& sizes = OfProcess().sizes[kind_];
  auto allocation = sizes.upper_bound(address);
  CHECK(allocation != sizes.begin()) << what << ": " << at << " is not " << kind_;
  --allocation;
  const uint64_t offset = address - allocation->first;
  const uint64_t size = allocation->second;
  CHECK(offset <= size && bytes <= size - offset)
      << what << ": bytes " << offset << " .. " << offset + bytes << " of " << size << " of "
      << kind_;
}

uint64_t GuardedMemory::SizeOf(const void* memory) const {
  const auto at = allocations_.find(reinterpret_cast<uintptr_t>(memory));
  CHECK(at != allocations_.end()) << kind_ << ": " << memory
                                  << " is not allocated, or was freed already";
  return at->second.bytes;
}

}  // namespace kaon::kernels::cuda::on_host
