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

absl::Status PinnedVersions::Keep(uint64_t first_step, uint64_t last_step, uint64_t num_elements,
                                  tier::TieredStore& store, std::string name,
                                  absl::FunctionRef<absl::Status(kernels::Region to)> copy) {
  KAON_RETURN_IF_ERROR(store.Allocate(name, num_elements));
  absl::StatusOr<tier::Pin> pin = store.Pin(name);
  CHECK(pin.ok()) << pin.status();
  Copy kept = {&store, std::move(name), *std::move(pin), first_step, last_step};
  const absl::Status copied = copy(kept.pin.region());
  if (!copied.ok()) {
    Free(kept);
    return copied;
  }
  copies_.push_back(std::move(kept));
  return absl::OkStatus();
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
