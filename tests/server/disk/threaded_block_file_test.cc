#include "server/disk/threaded_block_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "server/disk/device_error.h"
#include "tests/conformance/block_file_conformance.h"
#include "tests/testing/scratch_folder.h"

namespace kaon::disk {
namespace {

class Factory {
 public:
  std::unique_ptr<BlockFile> Open(uint64_t size_bytes) {
    auto file = ThreadedBlockFile::Open({folder_ / "state", size_bytes, 3});
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }

 private:
  testing::ScratchFolder folder_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Threads, BlockFileConformance, Factory);

TEST(ThreadedBlockFileTest, ReportsAFileThatWasCutOffAsAFailureOfTheDevice) {
  const testing::ScratchFolder folder;
  const auto file = ThreadedBlockFile::Open({folder / "state", 16 * kBlockBytes});
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(::truncate((folder / "state").c_str(), kBlockBytes), 0);
  Blocks to(2);
  Completion read;
  (*file)->Read(0, to.span(), read.Callback());
  const absl::Status status = read.Wait();
  EXPECT_TRUE(IsDeviceError(status)) << status;
  EXPECT_THAT(status.message(), ::testing::HasSubstr(absl::StrCat("ends at byte ", kBlockBytes)));
}

}  // namespace
}  // namespace kaon::disk
