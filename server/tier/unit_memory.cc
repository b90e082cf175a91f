#include "server/tier/unit_memory.h"

#include "proto/status_macros.h"

namespace kaon::tier {

UnitLayout::UnitLayout(uint64_t weight_bytes, const std::vector<uint64_t>& state_bytes)
    : sizes_({weight_bytes}), weights_(disk::RoundUpToBlocks(weight_bytes)) {
  for (const uint64_t bytes : state_bytes) {
    sizes_.push_back(bytes);
    state_offsets_.push_back(state_);
    state_ += disk::RoundUpToBlocks(bytes);
  }
}

UnitTensors UnitLayout::Tensors(int version, absl::Span<std::byte> memory) const {
  UnitTensors tensors;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    tensors.newest.emplace_back(memory.subspan(in_memory(version, i), sizes_[i]));
  }
  tensors.next_weights = kernels::Region(memory.subspan(in_memory(1 - version, 0), sizes_[0]));
  tensors.next_version = 1 - version;
  return tensors;
}

absl::StatusOr<UnitMemory> UnitMemory::Allocate(kernels::Backend& backend, uint64_t bytes) {
  UnitMemory memory;
  KAON_ASSIGN_OR_RETURN(memory.memory_, BackendMemory::AllocateStaging(backend, BytesFor(bytes)));
  const absl::Span<std::byte> all = memory.memory_.region().host_bytes();
  const auto address = reinterpret_cast<uintptr_t>(all.data());
  memory.bytes_ = all.subspan(disk::RoundUpToBlocks(address) - address, bytes);
  return memory;
}

absl::StatusOr<std::optional<UnitMemory>> StagingPool::Allocate(uint64_t bytes) {
  if (const auto found = spare_.find(bytes); found != spare_.end()) {
    UnitMemory memory = std::move(found->second);
    spare_.erase(found);
    return memory;
  }
  const uint64_t taken = UnitMemory::BytesFor(bytes);
  while (held_bytes_ + taken > most_bytes_ && !spare_.empty()) {
    held_bytes_ -= UnitMemory::BytesFor(spare_.begin()->first);
    spare_.erase(spare_.begin());
  }
  if (taken > most_bytes_ - held_bytes_) return std::nullopt;
  KAON_ASSIGN_OR_RETURN(UnitMemory memory, UnitMemory::Allocate(backend_, bytes));
  held_bytes_ += taken;
  return memory;
}

void StagingPool::Release(UnitMemory memory) {
  const uint64_t bytes = memory.bytes().size();
  spare_.emplace(bytes, std::move(memory));
}

}  // namespace kaon::tier
