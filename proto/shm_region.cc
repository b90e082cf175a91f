#include "proto/shm_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::proto {

namespace {

// Size of the first page. A worker compares its version; a shard never reads it.
constexpr size_t kControlBytes = 4096;
constexpr uint64_t kVersion = 0x314d48536e6f614b;  // "KaonSHM1"
constexpr size_t kMaxShmRingBytes = size_t{64} << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status Exhausted(absl::string_view what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("shared memory: ", what, ": ", std::strerror(errno)));
}

bool IsRingSize(size_t bytes) {
  return bytes >= kControlBytes && bytes <= kMaxShmRingBytes && (bytes & (bytes - 1)) == 0;
}

}  // namespace

struct ShmRegion::Control {
  uint64_t version;
  RingPlaces requests;
  RingPlaces responses;
};

absl::StatusOr<std::unique_ptr<ShmRegion>> ShmRegion::Create(size_t ring_bytes) {
  Descriptor memory(memfd_create("kaon-session", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) return Exhausted("memfd_create");
  const size_t bytes = kControlBytes + 2 * ring_bytes;
  // Allocated now: a page that is missing later would be a fault instead of a status.
  if (fallocate(memory.get(), 0, 0, static_cast<off_t>(bytes)) != 0) return Exhausted("fallocate");
  if (fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) return Exhausted("F_ADD_SEALS");
  std::unique_ptr<ShmRegion> region(new ShmRegion(std::move(memory), ring_bytes));
  KAON_RETURN_IF_ERROR(region->Map());
  std::memcpy(region->start_, &kVersion, sizeof(kVersion));
  return region;
}

absl::StatusOr<std::unique_ptr<ShmRegion>> ShmRegion::Open(Descriptor memory) {
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::InvalidArgumentError("shared memory: it is not sealed");
  }
  struct stat found = {};
  if (fstat(memory.get(), &found) != 0) return Exhausted("fstat");
  const auto bytes = static_cast<uint64_t>(found.st_size);
  const size_t ring_bytes = bytes < kControlBytes ? 0 : (bytes - kControlBytes) / 2;
  if (!IsRingSize(ring_bytes) || kControlBytes + 2 * ring_bytes != bytes) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory: it has ", bytes, " bytes"));
  }
  std::unique_ptr<ShmRegion> region(new ShmRegion(std::move(memory), ring_bytes));
  KAON_RETURN_IF_ERROR(region->Map());
  if (std::memcmp(region->start_, &kVersion, sizeof(kVersion)) != 0) {
    return absl::InvalidArgumentError("shared memory: it is of another version");
  }
  return region;
}

absl::Status ShmRegion::Map() {
  mapped_bytes_ = kControlBytes + 4 * ring_bytes_;
  void* start = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return Exhausted("mmap");
  start_ = static_cast<std::byte*>(start);
  std::byte* at = start_;
  const auto map = [&](size_t bytes, size_t offset) {
    void* mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                        memory_.get(), static_cast<off_t>(offset));
    at += bytes;
    return mapped != MAP_FAILED;
  };
  bool mapped = map(kControlBytes, 0);
  for (const size_t offset : {kControlBytes, kControlBytes + ring_bytes_}) {
    // Mapped twice, so that a record that runs over the ring's end continues at its beginning.
    mapped = mapped && map(ring_bytes_, offset) && map(ring_bytes_, offset);
  }
  if (!mapped) return Exhausted("mmap");
  return absl::OkStatus();
}

ShmRegion::~ShmRegion() {
  if (start_ != nullptr) munmap(start_, mapped_bytes_);
}

RingMemory ShmRegion::requests() const {
  auto* control = reinterpret_cast<Control*>(start_);
  return {&control->requests, start_ + kControlBytes, ring_bytes_};
}

RingMemory ShmRegion::responses() const {
  auto* control = reinterpret_cast<Control*>(start_);
  return {&control->responses, start_ + kControlBytes + 2 * ring_bytes_, ring_bytes_};
}

}  // namespace kaon::proto
