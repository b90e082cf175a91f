#include "server/tier/memory_home.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::tier {

MemoryHome::~MemoryHome() {
  for (auto& [name, pin] : tensors_) {
    pin = kaon::tier::Pin();
    const absl::Status freed = store_.Free(name);
    CHECK(freed.ok()) << freed;
  }
}

absl::StatusOr<kernels::Region> MemoryHome::Allocate(std::string name, uint64_t bytes) {
  // The store counts in floats.
  KAON_RETURN_IF_ERROR(store_.Allocate(name, (bytes + sizeof(float) - 1) / sizeof(float)));
  absl::StatusOr<kaon::tier::Pin> pin = store_.Pin(name);
  CHECK(pin.ok()) << pin.status();
  const kernels::Region memory = pin->region().Sub(0, bytes);
  tensors_.emplace_back(std::move(name), *std::move(pin));
  return memory;
}

absl::StatusOr<UnitId> MemoryHome::Add(const Unit& unit) {
  Held held;
  for (int i = 0; i < (unit.is_written_once ? 1 : 2); ++i) {
    KAON_ASSIGN_OR_RETURN(const kernels::Region memory,
                          Allocate(absl::StrCat("weight.", i, "/", unit.name), unit.weight_bytes));
    held.weights.push_back(memory);
  }
  KAON_ASSIGN_OR_RETURN(held.state, AddState(unit));
  units_.push_back(std::move(held));
  return units_.size() - 1;
}

absl::StatusOr<std::vector<kernels::Region>> MemoryHome::AddState(const Unit& unit) {
  std::vector<kernels::Region> state;
  for (const auto& [name, bytes] : unit.state) {
    KAON_ASSIGN_OR_RETURN(const kernels::Region memory,
                          Allocate(absl::StrCat(name, "/", unit.name), bytes));
    state.push_back(memory);
  }
  return state;
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
