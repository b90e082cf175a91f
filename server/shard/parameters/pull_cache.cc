#include "server/shard/parameters/pull_cache.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/status_macros.h"
#include "proto/tensor_stream.h"

namespace kaon::shard {

static_assert(RoundedVersion::kPieceBytes == proto::kMaxChunkBytes);

RoundedVersion::~RoundedVersion() {
  const uint64_t bytes = memory_.region().size();
  memory_ = tier::BackendMemory();
  if (bytes > 0) budget_.Release(bytes);
}

void RoundedVersion::Restart() {
  MutexLock lock(mu_);
  std::fill(pieces_.begin(), pieces_.end(), Piece::kEmpty);
  refused_ = false;
}

absl::Status RoundedVersion::Allocate(uint64_t bytes) {
  KAON_RETURN_IF_ERROR(budget_.Claim(bytes));
  absl::StatusOr<tier::BackendMemory> memory =
      tier::BackendMemory::AllocateStaging(backend_, bytes);
  if (!memory.ok()) {
    budget_.Release(bytes);
    return memory.status();
  }
  memory_ = *std::move(memory);
  pieces_.assign((bytes + kPieceBytes - 1) / kPieceBytes, Piece::kEmpty);
  return absl::OkStatus();
}

bool RoundedVersion::HasMemory(uint64_t num_elements) {
  MutexLock lock(mu_);
  if (refused_ || !pieces_.empty()) return !refused_;
  const absl::Status allocated = Allocate(num_elements * kernels::SizeOf(dtype_));
  refused_ = !allocated.ok();
  if (refused_) {
    LOG_EVERY_T(WARNING, 60) << "each pull copies out of the device: " << allocated;
  }
  return !refused_;
}

void RoundedVersion::Round(uint64_t piece, kernels::ConstRegion weights) {
  {
    MutexLock lock(mu_);
    while (pieces_[piece] == Piece::kBeingRounded) rounded_.Wait(mu_);
    if (pieces_[piece] == Piece::kRounded) return;
    pieces_[piece] = Piece::kBeingRounded;
  }
  const uint64_t first = piece * kPieceBytes;
  const uint64_t size = std::min(kPieceBytes, memory_.region().size() - first);
  const uint64_t element_bytes = kernels::SizeOf(dtype_);
  backend_.RoundOut(weights.SubFloats(first / element_bytes, size / element_bytes), dtype_,
                    memory_.region().host_bytes().data() + first);
  {
    MutexLock lock(mu_);
    pieces_[piece] = Piece::kRounded;
  }
  rounded_.NotifyAll();
}

void RoundedVersion::Read(kernels::ConstRegion weights, uint64_t offset, uint64_t num_elements,
                          std::byte* to) {
  if (num_elements == 0) return;
  if (!HasMemory(weights.num_floats())) {
    backend_.RoundOut(weights.SubFloats(offset, num_elements), dtype_, to);
    return;
  }
  const uint64_t first = offset * kernels::SizeOf(dtype_);
  const uint64_t size = num_elements * kernels::SizeOf(dtype_);
  for (uint64_t piece = first / kPieceBytes; piece * kPieceBytes < first + size; ++piece) {
    Round(piece, weights);
  }
  std::memcpy(to, memory_.region().Sub(first, size).data(), size);
}

std::shared_ptr<RoundedVersion> PullCache::Find(kernels::Backend& backend, tier::StateTier& budget,
                                                uint64_t first_step, kernels::DType dtype,
                                                bool older_are_read) {
  for (const Entry& entry : versions_) {
    if (entry.first_step == first_step && entry.version->dtype() == dtype) return entry.version;
  }
  for (Entry& entry : versions_) {
    const bool older = entry.first_step < first_step && entry.version->dtype() == dtype;
    // Readers get and return their version under the parameter's lock.
    if (!older || older_are_read || entry.version.use_count() > 1) continue;
    entry.version->Restart();
    entry.first_step = first_step;
    return entry.version;
  }
  return versions_
      .emplace_back(Entry{first_step, std::make_shared<RoundedVersion>(backend, budget, dtype)})
      .version;
}

void PullCache::KeepOnly(absl::FunctionRef<bool(uint64_t first_step)> present) {
  versions_.erase(
      std::remove_if(versions_.begin(), versions_.end(),
                     [present](const Entry& entry) { return !present(entry.first_step); }),
      versions_.end());
}

}  // namespace kaon::shard
