#include "kernels/cuda/fold_ring.h"

#include <gtest/gtest.h>

#include <thread>

#include "kernels/cuda/on_host/device_on_host.h"
#include "kernels/cuda/owned_memory.h"

namespace kaon::kernels::cuda {
namespace {

class FoldRingTest : public ::testing::Test {
 protected:
  const std::unique_ptr<Device> device_ = on_host::NewDeviceOnHost({});
  const std::unique_ptr<FoldRing> ring_ = FoldRing::Create(*device_, {2, 2}).value();
  const OwnedMemory memory_ = OwnedMemory::OnDevice(*device_, 1024).value();

  Region Part(uint64_t first, uint64_t size) const {
    return Region(Space::kDevice, memory_.data(), memory_.size()).Sub(first, size);
  }
};

TEST_F(FoldRingTest, ReusesTheSlotThatWasUsedLongestAgo) {
  FoldSlot& first = ring_->Take();
  FoldSlot& second = ring_->Take();
  EXPECT_NE(&first, &second);
  ring_->GiveBack(second);
  ring_->GiveBack(first);
  EXPECT_EQ(&ring_->Take(), &second);
  std::thread other([&] { EXPECT_EQ(&ring_->Take(), &first); });
  other.join();
  ring_->GiveBack(first);
  ring_->GiveBack(second);
}

TEST_F(FoldRingTest, SumsOfOneMemoryShareAStream) {
  FoldStream& first = ring_->Add(Part(0, 512));
  FoldStream& other = ring_->Add(Part(512, 512));
  EXPECT_NE(&first, &other);
  EXPECT_EQ(&ring_->Add(Part(0, 512)), &first);
  ring_->Remove(Part(0, 512));
  EXPECT_EQ(&ring_->Add(Part(0, 512)), &first) << "one accumulation is left";
}

TEST_F(FoldRingTest, OrdersWorkAfterTheFoldsIntoItsMemory) {
  FoldStream& folds = ring_->Add(Part(256, 256));
  const OwnedMemory out = OwnedMemory::Pinned(*device_, 4).value();
  for (const auto& [first, size] : {std::pair<uint64_t, uint64_t>{0, 257}, {511, 4}, {300, 1}}) {
    const std::unique_ptr<Stream> stream = device_->NewStream();
    {
      MutexLock lock(folds.mutex);
      for (int i = 0; i < 50; ++i) folds.stream->SetZero(Part(256, 256).data(), 256);
      folds.stream->Record(*folds.end);
    }
    ring_->OrderAfter(Part(first, size), *stream);
    stream->CopyOut(Part(256, 4).data(), out.data(), 4);
    stream->Synchronize();
    EXPECT_EQ(*reinterpret_cast<const uint32_t*>(out.data()), 0u) << first;
    // Not zero, for the next turn.
    MutexLock lock(folds.mutex);
    folds.stream->Copy(Part(0, 256).data(), Part(256, 256).data(), 256);
    folds.stream->Synchronize();
  }
}

}  // namespace
}  // namespace kaon::kernels::cuda
