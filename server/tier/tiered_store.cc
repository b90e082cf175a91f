#include "server/tier/tiered_store.h"

#include <glog/logging.h>

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::tier {

Pin::Pin(TieredStore* store, std::string name, kernels::Region region)
    : store_(store), name_(std::move(name)), region_(region) {}

Pin::Pin(Pin&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      name_(std::move(other.name_)),
      region_(std::exchange(other.region_, kernels::Region())) {}

Pin& Pin::operator=(Pin&& other) noexcept {
  if (this != &other) {
    Release();
    store_ = std::exchange(other.store_, nullptr);
    name_ = std::move(other.name_);
    region_ = std::exchange(other.region_, kernels::Region());
  }
  return *this;
}

Pin::~Pin() { Release(); }

void Pin::Release() {
  if (store_ != nullptr) std::exchange(store_, nullptr)->Unpin(name_);
}

TieredStore::TieredStore(StateTier& tier) : tier_(tier) {}

TieredStore::~TieredStore() {
  MutexLock lock(mu_);
  for (const auto& [name, tensor] : tensors_) {
    CHECK_EQ(tensor.pins, 0) << "tensor " << name << " is still pinned";
    CHECK(tier_.Free(tensor.extent).ok()) << name;
  }
}

absl::Status TieredStore::Allocate(absl::string_view name, uint64_t num_elements) {
  MutexLock lock(mu_);
  if (tensors_.find(name) != tensors_.end()) {
    return absl::AlreadyExistsError(absl::StrCat("tensor ", name, " is allocated already"));
  }
  const uint64_t most_elements = std::numeric_limits<uint64_t>::max() / sizeof(float);
  if (num_elements > most_elements) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tensor ", name, ": ", num_elements, " elements, at most ", most_elements));
  }
  const absl::StatusOr<ExtentId> extent = tier_.Allocate(num_elements * sizeof(float));
  if (!extent.ok()) {
    return absl::Status(extent.status().code(),
                        absl::StrCat("tensor ", name, ": ", extent.status().message()));
  }
  tensors_.emplace(std::string(name), Tensor{*extent, num_elements * sizeof(float), 0});
  return absl::OkStatus();
}

absl::Status TieredStore::Free(absl::string_view name) {
  MutexLock lock(mu_);
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return absl::NotFoundError(absl::StrCat("no tensor ", name));
  if (found->second.pins > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("tensor ", name, " is pinned ", found->second.pins, " times, expecting 0"));
  }
  KAON_RETURN_IF_ERROR(tier_.Free(found->second.extent));
  tensors_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<Pin> TieredStore::Pin(absl::string_view name) {
  MutexLock lock(mu_);
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return absl::NotFoundError(absl::StrCat("no tensor ", name));
  KAON_ASSIGN_OR_RETURN(const kernels::Region memory, tier_.Memory(found->second.extent));
  ++found->second.pins;
  return kaon::tier::Pin(this, found->first, memory.Sub(0, found->second.bytes));
}

absl::Status TieredStore::Prefetch(absl::string_view name) {
  MutexLock lock(mu_);
  if (tensors_.find(name) != tensors_.end()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no tensor ", name));
}

void TieredStore::Unpin(const std::string& name) {
  MutexLock lock(mu_);
  const auto found = tensors_.find(name);
  CHECK(found != tensors_.end() && found->second.pins > 0) << name;
  --found->second.pins;
}

}  // namespace kaon::tier
