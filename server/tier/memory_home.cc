#include "server/tier/memory_home.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::tier {

MemoryHome::~MemoryHome() {
  MutexLock lock(mu_);
  for (Held& held : units_) Free(held);
}

void MemoryHome::Free(Held& held) {
  for (auto& [name, pin] : held.tensors) {
    pin = kaon::tier::Pin();
    const absl::Status freed = store_.Free(name);
    CHECK(freed.ok()) << freed;
  }
  held = Held();
}

void MemoryHome::Remove(UnitId unit) {
  MutexLock lock(mu_);
  Free(units_.at(unit));
}

std::vector<kernels::Region> MemoryHome::state(UnitId unit) const {
  MutexLock lock(mu_);
  return units_.at(unit).state;
}

int MemoryHome::newest(UnitId unit) const {
  MutexLock lock(mu_);
  return units_.at(unit).newest;
}

absl::StatusOr<kernels::Region> MemoryHome::Allocate(std::string name, uint64_t bytes, Held& held) {
  // The store counts in floats.
  KAON_RETURN_IF_ERROR(store_.Allocate(name, (bytes + sizeof(float) - 1) / sizeof(float)));
  absl::StatusOr<kaon::tier::Pin> pin = store_.Pin(name);
  CHECK(pin.ok()) << pin.status();
  const kernels::Region memory = pin->region().Sub(0, bytes);
  held.tensors.emplace_back(std::move(name), *std::move(pin));
  return memory;
}

absl::StatusOr<UnitId> MemoryHome::Add(const Unit& unit) {
  Held held;
  const auto allocate = [&](std::string name, uint64_t bytes,
                            std::vector<kernels::Region>& to) -> absl::Status {
    const absl::StatusOr<kernels::Region> memory = Allocate(std::move(name), bytes, held);
    if (!memory.ok()) {
      Free(held);
      return memory.status();
    }
    to.push_back(*memory);
    return absl::OkStatus();
  };
  const int num_weights = unit.weight_bytes == 0 ? 0 : unit.is_written_once ? 1 : 2;
  for (int i = 0; i < num_weights; ++i) {
    KAON_RETURN_IF_ERROR(
        allocate(absl::StrCat("weight.", i, "/", unit.name), unit.weight_bytes, held.weights));
  }
  for (const auto& [name, bytes] : unit.state) {
    KAON_RETURN_IF_ERROR(allocate(absl::StrCat(name, "/", unit.name), bytes, held.state));
  }
  held.state.insert(held.state.end(), unit.shared_state.begin(), unit.shared_state.end());
  MutexLock lock(mu_);
  units_.push_back(std::move(held));
  return units_.size() - 1;
}

int MemoryHome::next(UnitId unit) const {
  MutexLock lock(mu_);
  return NextOf(units_.at(unit));
}

UnitTensors MemoryHome::TensorsOf(UnitId unit) const {
  MutexLock lock(mu_);
  const Held& held = units_.at(unit);
  UnitTensors tensors;
  tensors.newest.push_back(held.weights[held.newest]);
  tensors.newest.insert(tensors.newest.end(), held.state.begin(), held.state.end());
  tensors.next_version = NextOf(held);
  tensors.next_weights = held.weights[tensors.next_version];
  return tensors;
}

absl::StatusOr<UnitReadPin> MemoryHome::Pin(UnitId unit) {
  return UnitReadPin(*this, unit, TensorsOf(unit));
}

absl::StatusOr<UnitUpdatePin> MemoryHome::PinForUpdate(UnitId unit) {
  return UnitUpdatePin(*this, unit, TensorsOf(unit));
}

void MemoryHome::EndUpdate(UnitId unit, bool commit) {
  if (!commit) return;
  MutexLock lock(mu_);
  Held& held = units_.at(unit);
  held.newest = NextOf(held);
}

kernels::ConstRegion MemoryHome::Memory(UnitId unit, int version, size_t tensor) const {
  MutexLock lock(mu_);
  const Held& held = units_.at(unit);
  return tensor == 0 ? held.weights.at(version) : held.state.at(tensor - 1);
}

absl::Status MemoryHome::Read(UnitId unit, int version, size_t tensor, uint64_t offset,
                              absl::Span<std::byte> to) {
  const kernels::ConstRegion from = Memory(unit, version, tensor).Sub(offset, to.size());
  const absl::Span<const std::byte> bytes = from.host_bytes();
  std::copy(bytes.begin(), bytes.end(), to.begin());
  return absl::OkStatus();
}

}  // namespace kaon::tier
