#include "server/tier/file_space.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/simulation/disk/simulated_block_file.h"

namespace kaon::tier {
namespace {

using disk::kBlockBytes;

class FileSpaceTest : public testing::Test {
 protected:
  FileSpaceTest() {
    for (const uint64_t blocks : {4, 6}) {
      files_.push_back(*simulation::SimulatedBlockFile::Open(
          disk_, std::string(1, static_cast<char>('a' + files_.size())), blocks * kBlockBytes));
      raw_.push_back(files_.back().get());
    }
  }
  FileSpace::Place Allocate(FileSpace& space, uint64_t bytes) {
    const absl::StatusOr<FileSpace::Place> place = space.Allocate(bytes, "it takes");
    EXPECT_TRUE(place.ok()) << place.status();
    return place.value_or(FileSpace::Place());
  }

  simulation::SimulatedDirectory disk_{"/disk", 1};
  std::vector<std::unique_ptr<disk::BlockFile>> files_;
  std::vector<disk::BlockFile*> raw_;
};

TEST_F(FileSpaceTest, AllocatesWholeBlocksWhereMostIsLeft) {
  FileSpace space(raw_);
  EXPECT_EQ(space.capacity_bytes(), 10 * kBlockBytes);
  EXPECT_EQ(space.paths(), "/disk/a,/disk/b");
  const FileSpace::Place first = Allocate(space, 2 * kBlockBytes + 1);
  EXPECT_EQ(first.file, raw_[1]);
  EXPECT_EQ(first.offset, 0u);
  EXPECT_EQ(Allocate(space, kBlockBytes).file, raw_[0]);
  const FileSpace::Place third = Allocate(space, kBlockBytes);
  EXPECT_EQ(third.file, raw_[0]);
  EXPECT_EQ(third.offset, kBlockBytes);
  EXPECT_EQ(space.used_bytes(), 5 * kBlockBytes);
}

TEST_F(FileSpaceTest, RefusesWithTheArithmeticAndChangesNothing) {
  FileSpace space(raw_);
  Allocate(space, kBlockBytes);
  EXPECT_EQ(
      space.Allocate(6 * kBlockBytes, "it takes").status(),
      absl::ResourceExhaustedError("it takes 24576 bytes of /disk/b, which has 20480 of 24576 "
                                   "left in one piece; raise --nvme-bytes"));
  EXPECT_EQ(space.used_bytes(), kBlockBytes);
  Allocate(space, 5 * kBlockBytes);
}

TEST_F(FileSpaceTest, JoinsFreeExtents) {
  FileSpace space(raw_);
  std::vector<FileSpace::Place> places;
  for (int i = 0; i < 10; ++i) places.push_back(Allocate(space, kBlockBytes));
  EXPECT_FALSE(space.Allocate(1, "it takes").ok());
  // In this order an extent joins the one after it, the one before it, and both.
  for (const uint64_t block : {3, 4, 1, 0, 2}) {
    space.Free({raw_[1], block * kBlockBytes}, kBlockBytes);
  }
  EXPECT_EQ(space.used_bytes(), 5 * kBlockBytes);
  const FileSpace::Place all = Allocate(space, 5 * kBlockBytes);
  EXPECT_EQ(all.file, raw_[1]);
  EXPECT_EQ(all.offset, 0u);
}

}  // namespace
}  // namespace kaon::tier
