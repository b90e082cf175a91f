#include "server/tier/memory_home.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::tier {

MemoryHome::~MemoryHome() {
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

void MemoryHome::Remove(UnitId unit) { Free(units_.at(unit)); }

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
  Held& held = units_.emplace_back();
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
  return units_.size() - 1;
}

int MemoryHome::next(UnitId unit) const {
  const Held& held = units_.at(unit);
  return held.weights.size() == 1 ? 0 : 1 - held.newest;
}

UnitTensors MemoryHome::TensorsOf(UnitId unit) const {
  const Held& held = units_.at(unit);
  UnitTensors tensors;
  tensors.newest.push_back(held.weights[held.newest]);
  tensors.newest.insert(tensors.newest.end(), held.state.begin(), held.state.end());
  tensors.next_version = next(unit);
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
  if (commit) units_[unit].newest = next(unit);
}

kernels::ConstRegion MemoryHome::Memory(UnitId unit, int version, size_t tensor) const {
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
