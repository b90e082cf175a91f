#include "kernels/cuda/fold_ring.h"

#include <glog/logging.h>

#include <utility>

#include "kernels/cuda/seeded_bug.h"

namespace kaon::kernels::cuda {
namespace {

uintptr_t AddressOf(ConstRegion memory) { return reinterpret_cast<uintptr_t>(memory.data()); }

absl::StatusOr<std::unique_ptr<FoldSlot>> NewSlot(Device& device) {
  absl::StatusOr<OwnedMemory> pinned = OwnedMemory::Pinned(device, FoldSlot::kBytes);
  if (!pinned.ok()) return pinned.status();
  absl::StatusOr<OwnedMemory> memory = OwnedMemory::OnDevice(device, FoldSlot::kBytes);
  if (!memory.ok()) return memory.status();
  absl::StatusOr<OwnedMemory> squares =
      OwnedMemory::OnDevice(device, FoldSlot::kBlocks * sizeof(double));
  if (!squares.ok()) return squares.status();
  auto slot = std::make_unique<FoldSlot>();
  slot->pinned = *std::move(pinned);
  slot->device = *std::move(memory);
  slot->squares = *std::move(squares);
  slot->done = device.NewEvent();
  return slot;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FoldRing>> FoldRing::Create(Device& device, const Options& options) {
  std::unique_ptr<FoldRing> ring(new FoldRing());
  for (int i = 0; i < options.num_slots; ++i) {
    absl::StatusOr<std::unique_ptr<FoldSlot>> slot = NewSlot(device);
    if (!slot.ok()) return slot.status();
    ring->slots_.push_back(*std::move(slot));
    ring->GiveBack(*ring->slots_.back());
  }
  for (int i = 0; i < options.num_streams; ++i) {
    auto stream = std::make_unique<FoldStream>();
    {
      MutexLock lock(stream->mutex);
      stream->stream = device.NewStream();
    }
    stream->end = device.NewEvent();
    ring->streams_.push_back(std::move(stream));
  }
  return ring;
}

FoldSlot& FoldRing::Take() {
  FoldSlot* slot;
  {
    MutexLock lock(mutex_);
    while (free_.empty()) given_back_.Wait(mutex_);
    slot = free_.front();
    free_.pop_front();
  }
  if (!Has(SeededBug::kSlotReusedBeforeItsEvent)) slot->done->Await();
  return *slot;
}

void FoldRing::GiveBack(FoldSlot& slot) {
  MutexLock lock(mutex_);
  free_.push_back(&slot);
  given_back_.NotifyOne();
}

FoldStream& FoldRing::Add(ConstRegion sum) {
  MutexLock lock(mutex_);
  Sum& added = sums_[AddressOf(sum)];
  if (added.stream == nullptr) {
    added.stream = streams_[next_stream_++ % streams_.size()].get();
    added.size = sum.size();
  }
  CHECK_EQ(added.size, sum.size()) << "sums overlap";
  ++added.accumulations;
  return *added.stream;
}

void FoldRing::Remove(ConstRegion sum) {
  MutexLock lock(mutex_);
  const auto at = sums_.find(AddressOf(sum));
  CHECK(at != sums_.end());
  if (--at->second.accumulations == 0) sums_.erase(at);
}

void FoldRing::OrderAfter(ConstRegion memory, Stream& stream) {
  if (Has(SeededBug::kCopyNotAfterFolds)) return;
  const uintptr_t begin = AddressOf(memory);
  const uintptr_t end = begin + memory.size();
  MutexLock lock(mutex_);
  auto at = sums_.upper_bound(begin);
  if (at != sums_.begin()) --at;
  for (; at != sums_.end() && at->first < end; ++at) {
    if (at->first + at->second.size > begin) stream.Wait(*at->second.stream->end);
  }
}

}  // namespace kaon::kernels::cuda
