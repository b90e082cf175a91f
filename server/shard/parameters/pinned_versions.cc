#include "server/shard/parameters/pinned_versions.h"

#include <glog/logging.h>

#include <algorithm>

#include "proto/status_macros.h"

namespace kaon::shard {

PinnedVersions::~PinnedVersions() { Clear(); }

void PinnedVersions::Add(ReaderId reader, uint64_t step) { readers_.emplace(reader, step); }

void PinnedVersions::Remove(ReaderId reader) {
  readers_.erase(reader);
  copies_.remove_if([this](Copy& copy) {
    const bool unused = !Holds(copy.first_step, copy.last_step);
    if (unused) Free(copy);
    return unused;
  });
}

bool PinnedVersions::Holds(uint64_t first_step, uint64_t last_step) const {
  return std::any_of(readers_.begin(), readers_.end(), [&](const auto& one) {
    return first_step <= one.second && one.second <= last_step;
  });
}

absl::StatusOr<PinnedVersions::Copy> PinnedVersions::MakeCopy(
    uint64_t first_step, uint64_t last_step, uint64_t num_elements, tier::TieredStore& store,
    std::string name, absl::FunctionRef<absl::Status(kernels::Region to)> fill) {
  KAON_RETURN_IF_ERROR(store.Allocate(name, num_elements));
  absl::StatusOr<tier::Pin> pin = store.Pin(name);
  CHECK(pin.ok()) << pin.status();
  Copy copy = {&store, std::move(name), *std::move(pin), first_step, last_step};
  const absl::Status filled = fill(copy.pin.region());
  if (filled.ok()) return copy;
  Free(copy);
  return filled;
}

void PinnedVersions::Keep(Copy copy) {
  // Its last reader may have left meanwhile.
  if (Holds(copy.first_step, copy.last_step)) {
    copies_.push_back(std::move(copy));
  } else {
    Free(copy);
  }
}

StepWeights PinnedVersions::Find(uint64_t step) const {
  for (const Copy& copy : copies_) {
    if (copy.first_step <= step && step <= copy.last_step) {
      return {copy.first_step, copy.last_step, copy.pin.region()};
    }
  }
  return {};
}

void PinnedVersions::Clear() {
  for (Copy& copy : copies_) Free(copy);
  copies_.clear();
}

void PinnedVersions::Free(Copy& copy) {
  copy.pin = tier::Pin();
  const absl::Status freed = copy.store->Free(copy.name);
  CHECK(freed.ok()) << freed;
}

}  // namespace kaon::shard
