#include "server/disk/open_block_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "server/disk/threaded_block_file.h"
#include "server/disk/uring_block_file.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/scratch_folder.h"
#include "tests/testing/without_system_call.h"

namespace kaon::disk {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kSize = 16 * kBlockBytes;

TEST(OpenBlockFileTest, UsesThreadsIfTheyAreChosen) {
  const testing::ScratchFolder folder;
  const testing::CapturedLog log;
  const auto file = OpenBlockFile(folder / "state", kSize, FileIo::kThreads);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_NE(dynamic_cast<ThreadedBlockFile*>(file->get()), nullptr);
  EXPECT_THAT(log.text(), HasSubstr(absl::StrCat(folder / "state",
                                                 " is read and written by threads: as set\n")));
}

TEST(OpenBlockFileTest, UsesIoUringWhereItCan) {
  const testing::ScratchFolder folder;
  const testing::CapturedLog log;
  for (const FileIo io : {FileIo::kUring, FileIo::kAuto}) {
    const auto file = OpenBlockFile(folder / "state", kSize, io);
    if (absl::IsFailedPrecondition(file.status())) GTEST_SKIP() << file.status();
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_NE(dynamic_cast<UringBlockFile*>(file->get()), nullptr);
  }
  EXPECT_THAT(log.text(),
              HasSubstr(absl::StrCat(folder / "state", " is read and written by io_uring\n")));
}

TEST(OpenBlockFileTest, UsesThreadsWhereIoUringIsForbiddenAndSaysWhy) {
  const testing::ScratchFolder folder;
  const testing::CapturedLog log;
  testing::WithoutSystemCall(__NR_io_uring_setup, [&] {
    const auto file = OpenBlockFile(folder / "state", kSize, FileIo::kAuto);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_NE(dynamic_cast<ThreadedBlockFile*>(file->get()), nullptr);
  });
  EXPECT_THAT(log.text(), HasSubstr(" is read and written by threads: io_uring cannot be used: "
                                    "io_uring_setup: Operation not permitted\n"));
}

TEST(OpenBlockFileTest, RefusesAChosenIoUringThatIsForbidden) {
  const testing::ScratchFolder folder;
  testing::WithoutSystemCall(__NR_io_uring_setup, [&] {
    const absl::Status status = OpenBlockFile(folder / "state", kSize, FileIo::kUring).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(folder / "state"), HasSubstr("not permitted"),
                                        HasSubstr("set nvme_io to auto or threads")));
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "state"));
}

TEST(OpenBlockFileTest, ReturnsTheErrorsOfTheFile) {
  const testing::ScratchFolder folder;
  for (const FileIo io : {FileIo::kThreads, FileIo::kAuto}) {
    EXPECT_EQ(OpenBlockFile(folder / "none/state", kSize, io).status().code(),
              absl::StatusCode::kNotFound);
  }
}

TEST(FileIoTest, IsOneOfThree) {
  EXPECT_EQ(ParseFileIo("threads").value(), FileIo::kThreads);
  EXPECT_EQ(ParseFileIo("io_uring").value(), FileIo::kUring);
  EXPECT_EQ(ParseFileIo("auto").value(), FileIo::kAuto);
  EXPECT_EQ(ParseFileIo("aio").status(),
            absl::InvalidArgumentError("nvme_io is \"aio\", must be threads, io_uring or auto"));
}

}  // namespace
}  // namespace kaon::disk
