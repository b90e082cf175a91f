#include "server/disk/uring_block_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/disk/device_error.h"
#include "tests/conformance/block_file_conformance.h"
#include "tests/testing/scratch_folder.h"
#include "tests/testing/without_system_call.h"

namespace kaon::disk {
namespace {

constexpr uint64_t kSize = 16 * kBlockBytes;

// Returns why this machine cannot run the tests; empty if it can.
std::string WhyNot() {
  const testing::ScratchFolder folder;
  const absl::Status status = UringBlockFile::Open({folder / "state", kSize}).status();
  return absl::IsUnimplemented(status) ? std::string(status.message()) : "";
}

template <uint32_t kDepth>
class Factory {
 public:
  static std::string WhyNot() { return disk::WhyNot(); }
  std::unique_ptr<BlockFile> Open(uint64_t size_bytes) {
    auto file = UringBlockFile::Open({folder_ / "state", size_bytes, kDepth});
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }

 private:
  testing::ScratchFolder folder_;
};

// With a depth of 1 all other pieces wait.
using Depths = ::testing::Types<Factory<1>, Factory<16>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Uring, BlockFileConformance, Depths);

class UringBlockFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = WhyNot();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(UringBlockFileTest, ReportsAFileThatWasCutOffAsAFailureOfTheDevice) {
  const testing::ScratchFolder folder;
  const auto file = UringBlockFile::Open({folder / "state", kSize});
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(::truncate((folder / "state").c_str(), kBlockBytes), 0);
  Blocks to(2);
  Completion read;
  (*file)->Read(0, to.span(), read.Callback());
  const absl::Status status = read.Wait();
  EXPECT_TRUE(IsDeviceError(status)) << status;
  EXPECT_THAT(status.message(), ::testing::HasSubstr(absl::StrCat("ends at byte ", kBlockBytes)));
}

TEST_F(UringBlockFileTest, WorksInAFileSystemWithoutDirectAccess) {
  const testing::ScratchFolder folder("/dev/shm");
  const auto file = UringBlockFile::Open({folder / "state", kSize});
  ASSERT_TRUE(file.ok()) << file.status();
  Blocks from(16);
  from.Fill(9);
  Completion written;
  (*file)->Write(0, from.span(), written.Callback());
  ASSERT_EQ(written.Wait(), absl::OkStatus());
  Blocks to(16);
  Completion read;
  (*file)->Read(0, to.span(), read.Callback());
  ASSERT_EQ(read.Wait(), absl::OkStatus());
  EXPECT_EQ(to.span(), from.span());
}

// The kernel keeps the file open, and locked, while it ends what a killed process had begun.
TEST_F(UringBlockFileTest, OpensTheFileOfAProcessThatWasKilledWhileItWrote) {
  const testing::ScratchFolder folder;
  constexpr uint64_t kBlocks = 8 * SystemBlockFile::kPieceBytes / kBlockBytes;
  const auto write_and_die = [&] {
    auto file = UringBlockFile::Open({folder / "state", 4 * kBlocks * kBlockBytes});
    Blocks from(kBlocks);
    for (uint64_t offset = 0; offset < (*file)->size_bytes(); offset += from.span().size()) {
      (*file)->Write(offset, from.span(), [](const absl::Status&) { ::raise(SIGKILL); });
    }
    (*file).reset();
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EXIT(write_and_die(), ::testing::KilledBySignal(SIGKILL), "");
    EXPECT_EQ(UringBlockFile::Open({folder / "state", kSize}).status(), absl::OkStatus());
  }
}

TEST(ForbiddenUringTest, SaysWhyAndTouchesNoFile) {
  const testing::ScratchFolder folder;
  // Where nothing is allowed, the first call fails.
  const bool has_uring = WhyNot().empty();
  for (const auto& call : {std::pair{__NR_io_uring_setup, "io_uring_setup"},
                           std::pair{__NR_io_uring_enter, "io_uring_enter"}}) {
    testing::WithoutSystemCall(call.first, [&] {
      const absl::Status status = UringBlockFile::Open({folder / "state", kSize}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
      EXPECT_THAT(status.message(), ::testing::HasSubstr("io_uring cannot be used: "));
      if (has_uring) {
        EXPECT_THAT(status.message(), ::testing::HasSubstr(call.second));
      }
    });
  }
  EXPECT_NE(::access((folder / "state").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace kaon::disk
