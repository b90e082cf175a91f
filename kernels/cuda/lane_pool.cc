#include "kernels/cuda/lane_pool.h"

namespace kaon::kernels::cuda {
namespace {

// Sets `memory` to newly allocated memory.
absl::Status Take(absl::StatusOr<OwnedMemory> allocated, OwnedMemory& memory) {
  if (!allocated.ok()) return allocated.status();
  memory = *std::move(allocated);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Lane>> NewLane(Device& device) {
  auto lane = std::make_unique<Lane>();
  absl::Status status = Take(OwnedMemory::OnDevice(device, Lane::kResultBytes), lane->result);
  status.Update(Take(OwnedMemory::Pinned(device, Lane::kResultBytes), lane->result_out));
  for (Lane::Piece& piece : lane->pieces) {
    status.Update(Take(OwnedMemory::Pinned(device, Lane::kPieceBytes), piece.pinned));
    status.Update(Take(OwnedMemory::OnDevice(device, Lane::kPieceBytes), piece.device));
    piece.done = device.NewEvent();
  }
  if (!status.ok()) return status;
  lane->stream = device.NewStream();
  lane->end = device.NewEvent();
  return lane;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LanePool>> LanePool::Create(Device& device, int num_lanes) {
  std::unique_ptr<LanePool> pool(new LanePool());
  for (int i = 0; i < num_lanes; ++i) {
    absl::StatusOr<std::unique_ptr<Lane>> lane = NewLane(device);
    if (!lane.ok()) return lane.status();
    pool->lanes_.push_back(*std::move(lane));
    pool->Return(*pool->lanes_.back());
  }
  return pool;
}

LanePool::Borrowed LanePool::Borrow() { return std::move(BorrowSome(1).front()); }

std::vector<LanePool::Borrowed> LanePool::BorrowSome(size_t most) {
  std::vector<Borrowed> borrowed;
  MutexLock lock(mutex_);
  while (idle_.empty()) returned_.Wait(mutex_);
  while (!idle_.empty() && borrowed.size() < most) {
    borrowed.emplace_back(*this, *idle_.back());
    idle_.pop_back();
  }
  return borrowed;
}

void LanePool::Return(Lane& lane) {
  MutexLock lock(mutex_);
  idle_.push_back(&lane);
  returned_.NotifyOne();
}

}  // namespace kaon::kernels::cuda
