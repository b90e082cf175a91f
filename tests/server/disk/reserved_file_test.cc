#include "server/disk/reserved_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/disk/block_file.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/scratch_folder.h"

namespace kaon::disk {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ScratchFolder;

constexpr uint64_t kSize = 16 * kBlockBytes;

TEST(ReservedFileTest, ReservesAllBlocksForItsOwnerAlone) {
  const ScratchFolder folder;
  ASSERT_TRUE(ReservedFile::Open(folder / "state", kSize).ok());
  struct stat state;
  ASSERT_EQ(::stat((folder / "state").c_str(), &state), 0);
  EXPECT_EQ(static_cast<uint64_t>(state.st_size), kSize);
  EXPECT_GE(static_cast<uint64_t>(state.st_blocks) * 512, kSize);
  EXPECT_EQ(state.st_mode & 0777, 0600u);
}

TEST(ReservedFileTest, GrowsAFileThatIsTooSmallAndCutsNoneOff) {
  const ScratchFolder folder;
  const std::string text(2 * kBlockBytes, 'k');
  std::ofstream(folder / "state") << text;
  for (const uint64_t size : {4 * kSize, kSize}) {
    const auto file = ReservedFile::Open(folder / "state", size);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->size_bytes(), size);
    std::string read(text.size(), ' ');
    std::ifstream(folder / "state").read(read.data(), static_cast<std::streamsize>(read.size()));
    EXPECT_EQ(read, text);
  }
  EXPECT_EQ(std::filesystem::file_size(folder / "state"), 4 * kSize);
}

TEST(ReservedFileTest, BelongsToOneShard) {
  const ScratchFolder folder;
  const auto first = ReservedFile::Open(folder / "state", kSize);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = ReservedFile::Open(folder / "state", 2 * kSize).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.message(), HasSubstr("another shard is using it; give each its own file"));
  EXPECT_EQ(std::filesystem::file_size(folder / "state"), kSize);
}

TEST(ReservedFileTest, RefusesMoreThanTheFileSystemHasAndLeavesNothing) {
  const ScratchFolder folder;
  struct statvfs system;
  ASSERT_EQ(::statvfs(::testing::TempDir().c_str(), &system), 0);
  const uint64_t all = static_cast<uint64_t>(system.f_blocks) * system.f_frsize;
  const uint64_t more = (all / kBlockBytes + 1) * kBlockBytes;
  const absl::Status status = ReservedFile::Open(folder / "state", more).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(absl::StrCat("reserving ", more, " bytes for ", folder / "state")),
                    HasSubstr(" free")));
  EXPECT_FALSE(std::filesystem::exists(folder / "state"));

  ASSERT_TRUE(ReservedFile::Open(folder / "state", kSize).ok());
  EXPECT_FALSE(ReservedFile::Open(folder / "state", more).ok());
  EXPECT_EQ(std::filesystem::file_size(folder / "state"), kSize);
}

TEST(ReservedFileTest, SaysWhatIsWrongWithThePath) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "directory");
  std::ofstream(folder / "file") << "text";
  std::filesystem::create_symlink(folder / "file", folder / "link");
  struct Case {
    std::string path;
    absl::StatusCode code;
    std::string why;
  };
  for (const Case& wrong : {
           Case{folder / "none/state", absl::StatusCode::kNotFound, "No such file or directory"},
           Case{folder / "file/state", absl::StatusCode::kFailedPrecondition, "Not a directory"},
           Case{folder / "directory", absl::StatusCode::kFailedPrecondition, "Is a directory"},
           Case{folder / "link", absl::StatusCode::kFailedPrecondition, "symbolic link"},
       }) {
    const absl::Status status = ReservedFile::Open(wrong.path, kSize).status();
    EXPECT_EQ(status.code(), wrong.code) << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(wrong.path), HasSubstr(wrong.why)));
  }
  EXPECT_EQ(std::filesystem::file_size(folder / "file"), 4u);
}

TEST(ReservedFileTest, WorksWithoutDirectAccessAndSaysSo) {
  // A tmpfs, whose O_DIRECT depends on the kernel.
  const ScratchFolder folder("/dev/shm");
  const testing::CapturedLog log;
  const auto file = ReservedFile::Open(folder / "state", kSize);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(log.text().find("without O_DIRECT") == std::string::npos, (*file)->is_direct());
  alignas(kBlockBytes) std::byte block[kBlockBytes];
  EXPECT_EQ(::pread((*file)->fd(), block, kBlockBytes, 0), static_cast<ssize_t>(kBlockBytes));
  // A ring would not wait for a file with this flag.
  EXPECT_EQ(::fcntl((*file)->fd(), F_GETFL) & O_NONBLOCK, 0);
}

}  // namespace
}  // namespace kaon::disk
