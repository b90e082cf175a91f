#include "server/tier/swapped_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/disk/completion.h"
#include "server/disk/device_error.h"
#include "server/disk/threaded_block_file.h"
#include "tests/simulation/disk/simulated_block_file.h"

namespace kaon::tier {
namespace {

using disk::kBlockBytes;
using testing::HasSubstr;

constexpr uint64_t kFileBytes = 256 * kBlockBytes;

class SwappedMemoryTest : public testing::Test {
 protected:
  SwappedMemoryTest() { file_ = *simulation::SimulatedBlockFile::Open(disk_, "sums", kFileBytes); }

  // Extents of these numbers of blocks, in memory of `room` blocks.
  void Make(uint64_t room, const std::vector<uint64_t>& blocks) {
    disk::BlockFile* const files[] = {file_.get()};
    space_ = std::make_unique<FileSpace>(files);
    memory_ = std::make_unique<SwappedMemory>(
        *space_, room * kBlockBytes, [this](const absl::Status& status) { failed_ = status; });
    for (const uint64_t count : blocks) {
      ASSERT_TRUE(memory_->Add(absl::StrCat("s", regions_.size()), count * kBlockBytes).ok());
      regions_.push_back(memory_->region(regions_.size()));
    }
  }
  absl::Span<float> Floats(size_t id) {
    return {reinterpret_cast<float*>(regions_[id].data()), regions_[id].num_floats()};
  }
  void Fill(size_t id, float value) {
    const auto hold = memory_->PinForWrite(id);
    ASSERT_TRUE(hold.ok()) << hold.status();
    for (size_t i = 0; i < Floats(id).size(); ++i) {
      Floats(id)[i] = value + static_cast<float>(i);
    }
  }
  void Expect(size_t id, float value) {
    const auto hold = memory_->Pin(id);
    ASSERT_TRUE(hold.ok()) << hold.status();
    for (size_t i = 0; i < Floats(id).size(); ++i) {
      ASSERT_EQ(Floats(id)[i], value + static_cast<float>(i)) << id << " element " << i;
    }
  }
  // Blocks of all extents whose pages are in memory.
  uint64_t Resident() {
    uint64_t count = 0;
    for (const kernels::Region& region : regions_) {
      std::vector<unsigned char> pages(region.size() / kBlockBytes);
      EXPECT_EQ(mincore(region.data(), region.size(), pages.data()), 0);
      for (const unsigned char page : pages) count += page & 1;
    }
    return count;
  }

  simulation::SimulatedDirectory disk_{"/nvme", 1};
  std::unique_ptr<disk::BlockFile> file_;
  std::unique_ptr<FileSpace> space_;
  std::unique_ptr<SwappedMemory> memory_;
  std::vector<kernels::Region> regions_;
  absl::Status failed_;
};

TEST_F(SwappedMemoryTest, KeepsAllContentsInTheRoomItHas) {
  Make(10, {1, 5, 2, 3, 1, 2});
  for (int round = 0; round < 3; ++round) {
    for (size_t id = 0; id < regions_.size(); ++id) {
      Fill(id, static_cast<float>(100 * round + id));
      EXPECT_LE(Resident(), 10u);
    }
    for (size_t id = regions_.size(); id-- > 0;) {
      Expect(id, static_cast<float>(100 * round + id));
      EXPECT_LE(Resident(), 10u);
    }
  }
  EXPECT_EQ(space_->used_bytes(), 14 * kBlockBytes);
}

TEST_F(SwappedMemoryTest, WritesAnExtentOnceForEachChange) {
  Make(2, {1, 1, 1});
  for (size_t id = 0; id < 3; ++id) Fill(id, static_cast<float>(id));
  for (int i = 0; i < 3; ++i) {
    for (size_t id = 0; id < 3; ++id) Expect(id, static_cast<float>(id));
  }
  EXPECT_EQ(memory_->counters().written_bytes, 3 * kBlockBytes);
  EXPECT_EQ(memory_->counters().read_bytes, 9 * kBlockBytes);
  Fill(0, 3);
  Expect(1, 1);
  Expect(2, 2);
  Expect(0, 3);
  EXPECT_EQ(memory_->counters().written_bytes, 4 * kBlockBytes);
}

TEST_F(SwappedMemoryTest, WritesNothingThatWasDiscarded) {
  Make(2, {1, 1, 1});
  Fill(0, 1);
  Fill(1, 2);
  memory_->Discard(1);
  Fill(2, 3);
  // It would have been written, as the one used longest ago.
  Expect(0, 1);
  EXPECT_EQ(memory_->counters().written_bytes, 0u);
  EXPECT_EQ(memory_->counters().read_bytes, 0u);
}

TEST_F(SwappedMemoryTest, ReadsAheadWhereNothingElseIsKept) {
  Make(2, {1, 1, 1, 1});
  for (size_t id = 0; id < 4; ++id) Fill(id, static_cast<float>(id));
  memory_->Prefetch({{0, 1, 2, 3}});
  EXPECT_EQ(memory_->counters().read_bytes, 0u);
  memory_->Discard(3);
  EXPECT_EQ(memory_->counters().read_bytes, kBlockBytes);
  Expect(0, 0);
  EXPECT_EQ(memory_->counters().read_bytes, kBlockBytes);
}

TEST_F(SwappedMemoryTest, APinWaitsForRoom) {
  Make(4, {2, 2, 1});
  auto first = memory_->PinForWrite(0);
  const auto second = memory_->PinForWrite(1);
  ASSERT_TRUE(first.ok() && second.ok());
  std::atomic<bool> released = false;
  std::thread other([&] {
    const auto third = memory_->PinForWrite(2);
    EXPECT_TRUE(released);
    EXPECT_LE(Resident(), 4u);
  });
  Floats(0)[0] = 5;
  Floats(1)[0] = 6;
  released = true;
  *first = nullptr;
  other.join();
  const auto hold = memory_->Pin(0);
  ASSERT_TRUE(hold.ok());
  EXPECT_EQ(Floats(0)[0], 5);
  EXPECT_EQ(Floats(1)[0], 6);
}

TEST_F(SwappedMemoryTest, SaysHowManyFitAtOnce) {
  Make(8, {3, 1, 1, 4});
  EXPECT_EQ(memory_->NumPinnable({{0, 1, 2}}), 2u);
  EXPECT_EQ(memory_->NumPinnable({{3, 0}}), 1u);
  EXPECT_EQ(memory_->NumPinnable({}), 0u);
}

TEST_F(SwappedMemoryTest, ManyThreadsKeepTheirContents) {
  const std::string path = testing::TempDir() + "/swapped";
  file_ = *disk::ThreadedBlockFile::Open({path, kFileBytes, 2});
  Make(12, {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4});
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      std::mt19937 random(static_cast<unsigned>(thread));
      std::vector<float> values(4, -1);
      for (int i = 0; i < 300; ++i) {
        const size_t mine = random() % 4;
        const size_t id = 4 * thread + mine;
        if (values[mine] >= 0) Expect(id, values[mine]);
        if (random() % 4 == 0) {
          memory_->Discard(id);
          values[mine] = -1;
        } else {
          values[mine] = static_cast<float>(random() % 1000);
          Fill(id, values[mine]);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(Resident(), 12u);
  memory_.reset();
  std::filesystem::remove(path);
}

TEST_F(SwappedMemoryTest, NamesTheSumOfAChangedByteAndStaysFailed) {
  Make(2, {1, 1, 1});
  for (size_t id = 0; id < 3; ++id) Fill(id, static_cast<float>(id));
  const std::unique_ptr<std::byte[]> all(new std::byte[2 * kBlockBytes]);
  void* aligned = all.get();
  size_t space = 2 * kBlockBytes;
  std::byte* const block =
      static_cast<std::byte*>(std::align(kBlockBytes, kBlockBytes, aligned, space));
  disk::Completion read;
  file_->Read(0, {block, kBlockBytes}, read.Callback());
  ASSERT_TRUE(read.Wait().ok());
  block[77] ^= std::byte{4};
  disk::Completion written;
  file_->Write(0, {block, kBlockBytes}, written.Callback());
  ASSERT_TRUE(written.Wait().ok());
  const absl::Status status = memory_->Pin(0).status();
  EXPECT_TRUE(disk::IsDeviceError(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("unit s0, its sum"));
  EXPECT_EQ(failed_, status);
  EXPECT_EQ(memory_->Pin(1).status(), status);
}

TEST_F(SwappedMemoryTest, RemovesOneExtentAndUsesItsSpaceAgain) {
  Make(2, {1, 1, 1});
  for (size_t id = 0; id < 3; ++id) Fill(id, static_cast<float>(id));
  memory_->Remove(1);
  EXPECT_EQ(space_->used_bytes(), 2 * kBlockBytes);
  const auto added = memory_->Add("new", kBlockBytes);
  ASSERT_TRUE(added.ok());
  regions_.push_back(memory_->region(*added));
  Fill(3, 7);
  Expect(0, 0);
  Expect(2, 2);
  Expect(3, 7);
}

TEST_F(SwappedMemoryTest, RefusesWhatDoesNotFitWithTheArithmetic) {
  Make(500, {250});
  EXPECT_EQ(
      memory_->Add("w", 251 * kBlockBytes - 1).status(),
      absl::ResourceExhaustedError(
          "the sum of its gradients takes 1028096 bytes of memory, and 2048000 of staging are "
          "for sums and must hold it twice; raise --nvme-staging-bytes to 8224768"));
  EXPECT_EQ(memory_->Add("w", 7 * kBlockBytes).status(),
            absl::ResourceExhaustedError(
                "the sum of its gradients takes 28672 bytes of /nvme/sums, which has 24576 of "
                "1048576 left in one piece; raise --nvme-bytes"));
  memory_->Clear();
  EXPECT_EQ(space_->used_bytes(), 0u);
}

}  // namespace
}  // namespace kaon::tier
