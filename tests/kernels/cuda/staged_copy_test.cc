#include "kernels/cuda/staged_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cuda/on_host/device_on_host.h"

namespace kaon::kernels::cuda {
namespace {

TEST(StagedCopyTest, CopiesAnySizeInAndOut) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const std::unique_ptr<Device> device = on_host::NewDeviceOnHost({seed});
    const std::unique_ptr<LanePool> pool = LanePool::Create(*device, 1).value();
    const LanePool::Borrowed lane = pool->Borrow();
    constexpr uint64_t kPiece = Lane::kPieceBytes;
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, kPiece, kPiece + 1, 4 * kPiece + 7}) {
      std::vector<std::byte> from(bytes);
      for (uint64_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i / 4099);
      auto* const memory = static_cast<std::byte*>(device->Allocate(bytes + 1).value());
      CopyInThrough(*lane, from.data(), bytes, memory);
      std::vector<std::byte> to(bytes);
      CopyOutThrough(*lane, memory, bytes, to.data());
      EXPECT_EQ(to, from) << bytes;
      device->Free(memory);
    }
  }
}

TEST(StagedCopyTest, CopiesOutWhatTheDeviceComputesPieceByPiece) {
  const std::unique_ptr<Device> device = on_host::NewDeviceOnHost({});
  const std::unique_ptr<LanePool> pool = LanePool::Create(*device, 1).value();
  const LanePool::Borrowed lane = pool->Borrow();
  std::vector<std::byte> to(2 * Lane::kPieceBytes + 5, std::byte{1});
  std::vector<uint64_t> offsets;
  const auto queue = [&](Lane::Piece& piece, uint64_t offset, uint64_t n) {
    offsets.push_back(offset);
    lane->stream->SetZero(piece.device.data(), n);
    lane->stream->CopyOut(piece.device.data(), piece.pinned.data(), n);
  };
  CopyOutPieces(*lane, to.size(), queue, to.data());
  EXPECT_EQ(to, std::vector<std::byte>(to.size()));
  EXPECT_EQ(offsets, (std::vector<uint64_t>{0, Lane::kPieceBytes, 2 * Lane::kPieceBytes}));
}

}  // namespace
}  // namespace kaon::kernels::cuda
