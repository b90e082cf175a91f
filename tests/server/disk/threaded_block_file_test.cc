#include "server/disk/threaded_block_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/disk/device_error.h"
#include "tests/conformance/block_file_conformance.h"
#include "tests/testing/captured_log.h"

namespace kaon::disk {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kSize = 16 * kBlockBytes;

// A directory that is removed with this object.
class Folder {
 public:
  explicit Folder(const std::string& parent = ::testing::TempDir())
      : path_(parent + "/blocks-XXXXXX") {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr) << path_;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

class Factory {
 public:
  std::unique_ptr<BlockFile> Open(uint64_t size_bytes) {
    auto file = ThreadedBlockFile::Open({folder_ / "state", size_bytes, 3});
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }

 private:
  Folder folder_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Threads, BlockFileConformance, Factory);

absl::Status ReadFirst(BlockFile& file, Blocks& to) {
  Completion read;
  file.Read(0, to.span(), read.Callback());
  return read.Wait();
}

TEST(ThreadedBlockFileTest, ReservesAllBlocksForItsOwnerAlone) {
  const Folder folder;
  ASSERT_TRUE(ThreadedBlockFile::Open({folder / "state", kSize}).ok());
  struct stat state;
  ASSERT_EQ(::stat((folder / "state").c_str(), &state), 0);
  EXPECT_EQ(static_cast<uint64_t>(state.st_size), kSize);
  EXPECT_GE(static_cast<uint64_t>(state.st_blocks) * 512, kSize);
  EXPECT_EQ(state.st_mode & 0777, 0600u);
}

TEST(ThreadedBlockFileTest, GrowsAFileThatIsTooSmallAndCutsNoneOff) {
  const Folder folder;
  Blocks written(2);
  written.Fill(7);
  std::ofstream(folder / "state") << std::string(
      reinterpret_cast<const char*>(written.span().data()), written.span().size());
  for (const uint64_t size : {4 * kSize, kSize}) {
    const auto file = ThreadedBlockFile::Open({folder / "state", size});
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->size_bytes(), size);
    Blocks read(2);
    EXPECT_EQ(ReadFirst(**file, read), absl::OkStatus());
    EXPECT_EQ(read.span(), written.span());
  }
  EXPECT_EQ(std::filesystem::file_size(folder / "state"), 4 * kSize);
}

TEST(ThreadedBlockFileTest, BelongsToOneShard) {
  const Folder folder;
  const auto first = ThreadedBlockFile::Open({folder / "state", kSize});
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = ThreadedBlockFile::Open({folder / "state", 2 * kSize}).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.message(), HasSubstr("another shard is using it; give each its own file"));
  EXPECT_EQ(std::filesystem::file_size(folder / "state"), kSize);
}

TEST(ThreadedBlockFileTest, RefusesMoreThanTheFileSystemHasAndLeavesNothing) {
  const Folder folder;
  struct statvfs system;
  ASSERT_EQ(::statvfs(::testing::TempDir().c_str(), &system), 0);
  const uint64_t all = static_cast<uint64_t>(system.f_blocks) * system.f_frsize;
  const uint64_t more = (all / kBlockBytes + 1) * kBlockBytes;
  const absl::Status status = ThreadedBlockFile::Open({folder / "state", more}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(absl::StrCat("reserving ", more, " bytes for ", folder / "state")),
                    HasSubstr(" free")));
  EXPECT_FALSE(std::filesystem::exists(folder / "state"));

  ASSERT_TRUE(ThreadedBlockFile::Open({folder / "state", kSize}).ok());
  EXPECT_FALSE(ThreadedBlockFile::Open({folder / "state", more}).ok());
  EXPECT_EQ(std::filesystem::file_size(folder / "state"), kSize);
}

TEST(ThreadedBlockFileTest, SaysWhatIsWrongWithThePath) {
  const Folder folder;
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
    const absl::Status status = ThreadedBlockFile::Open({wrong.path, kSize}).status();
    EXPECT_EQ(status.code(), wrong.code) << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(wrong.path), HasSubstr(wrong.why)));
  }
  EXPECT_EQ(std::filesystem::file_size(folder / "file"), 4u);
}

TEST(ThreadedBlockFileTest, WorksWithoutDirectAccessAndSaysSo) {
  // A tmpfs, whose O_DIRECT depends on the kernel.
  const Folder folder("/dev/shm");
  const kaon::testing::CapturedLog log;
  const auto file = ThreadedBlockFile::Open({folder / "state", kSize});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(log.text().find("without O_DIRECT") == std::string::npos, (*file)->is_direct());
  Blocks read(1);
  EXPECT_EQ(ReadFirst(**file, read), absl::OkStatus());
}

TEST(ThreadedBlockFileTest, ReportsAFileThatWasCutOffAsAFailureOfTheDevice) {
  const Folder folder;
  const auto file = ThreadedBlockFile::Open({folder / "state", kSize});
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(::truncate((folder / "state").c_str(), kBlockBytes), 0);
  Blocks read(2);
  const absl::Status status = ReadFirst(**file, read);
  EXPECT_TRUE(IsDeviceError(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("ends at byte ", kBlockBytes)));
}

}  // namespace
}  // namespace kaon::disk
