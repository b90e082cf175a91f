#include "server/disk/posix_directory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>
#include <thread>

#include "tests/conformance/directory_conformance.h"

namespace kaon::disk {
namespace {

struct PosixDirectoryFactory {
  static std::string CreatePath() {
    std::string path = testing::TempDir() + "/directory-XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    return path;
  }
  static std::unique_ptr<Directory> Create() {
    return std::move(PosixDirectory::At(CreatePath())).value();
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(PosixDirectory, DirectoryConformance, PosixDirectoryFactory);

class PosixDirectoryTest : public testing::Test {
 protected:
  const std::string path_ = PosixDirectoryFactory::CreatePath();
  std::unique_ptr<PosixDirectory> directory_ = std::move(PosixDirectory::At(path_)).value();
};

// The snapshots of a shard are listed while its journal is truncated.
TEST_F(PosixDirectoryTest, ListsWhileSomebodyElseRemoves) {
  std::atomic<bool> stop = false;
  std::thread other([this, &stop] {
    const auto directory = std::move(PosixDirectory::At(path_)).value();
    while (!stop) {
      for (int i = 0; i < 10; ++i) EXPECT_TRUE(directory->Create(std::to_string(i)).ok());
      for (int i = 0; i < 10; ++i) EXPECT_TRUE(directory->Remove(std::to_string(i)).ok());
    }
  });
  ASSERT_TRUE(directory_->Create("stays").ok());
  for (int i = 0; i < 2000; ++i) {
    const auto names = directory_->List();
    ASSERT_TRUE(names.ok()) << names.status();
    EXPECT_EQ(names->back(), "stays");
  }
  stop = true;
  other.join();
}

// The file system is read-only. A user who may write the files, such as root, is not refused.
TEST_F(PosixDirectoryTest, WhatCanOnlyBeReadIsRead) {
  constexpr uid_t kNobody = 65534;
  const auto written = std::move(directory_->Create("file")).value();
  ASSERT_TRUE(written->Write(0, {"bytes"}).ok());
  ASSERT_EQ(chmod((path_ + "/file").c_str(), 0444), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0755), 0);
  const bool is_root = geteuid() == 0;
  ASSERT_EQ(is_root ? seteuid(kNobody) : 0, 0);
  const absl::StatusOr<std::unique_ptr<File>> file = directory_->Open("file");
  ASSERT_EQ(is_root ? seteuid(0) : 0, 0);
  ASSERT_TRUE(file.ok()) << file.status();
  std::string bytes(5, '\0');
  EXPECT_EQ((*file)->Read(0, 5, bytes.data()).value(), 5u);
  EXPECT_EQ(bytes, "bytes");
  EXPECT_EQ((*file)->Write(0, {"other"}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*file)->Truncate(1).message(),
            "truncating " + path_ + "/file: Permission denied");
}

// Connections of strangers use the same table: a shard waits until they are gone.
TEST_F(PosixDirectoryTest, NoRoomForAnotherOpenFileIsAReasonToWait) {
  const auto open = std::move(directory_->Create("open")).value();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status refused = directory_->Create("another").status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_TRUE(directory_->Create("another").ok());
}

TEST_F(PosixDirectoryTest, OpensOnlyADirectory) {
  const absl::Status missing = PosixDirectory::At(path_ + "/none").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(missing.message(), "directory " + path_ + "/none: No such file or directory");
  ASSERT_TRUE(directory_->Create("file").ok());
  EXPECT_EQ(PosixDirectory::At(path_ + "/file").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(PosixDirectoryTest, CreatesFilesThatOnlyTheirOwnerMayRead) {
  const mode_t mask = umask(0);
  ASSERT_TRUE(directory_->Create("file").ok());
  umask(mask);
  struct stat state;
  ASSERT_EQ(stat((path_ + "/file").c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 07777, 0600u);
}

TEST_F(PosixDirectoryTest, FollowsNoSymbolicLinkAndOpensNoPipe) {
  ASSERT_EQ(symlink("/etc/passwd", (path_ + "/link").c_str()), 0);
  ASSERT_EQ(mkfifo((path_ + "/pipe").c_str(), 0600), 0);
  ASSERT_EQ(mkdir((path_ + "/folder").c_str(), 0700), 0);
  for (const std::string name : {"link", "pipe", "folder"}) {
    const absl::Status status = directory_->Open(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find(path_ + "/" + name), absl::string_view::npos) << status;
    EXPECT_EQ(directory_->Create(name).status().code(), absl::StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(*directory_->List(), (std::vector<std::string>{"link", "pipe"}));
}

TEST_F(PosixDirectoryTest, StaysInItsDirectoryWhenThatIsMoved) {
  ASSERT_EQ(rename(path_.c_str(), (path_ + "-moved").c_str()), 0);
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  ASSERT_TRUE(directory_->Create("file").ok());
  EXPECT_EQ(access((path_ + "-moved/file").c_str(), F_OK), 0);
  EXPECT_NE(access((path_ + "/file").c_str(), F_OK), 0);
}

TEST_F(PosixDirectoryTest, IsLockedByOneAtATime) {
  ASSERT_TRUE(directory_->Lock().ok());
  EXPECT_TRUE(directory_->Lock().ok());
  const std::unique_ptr<PosixDirectory> other = std::move(PosixDirectory::At(path_)).value();
  const absl::Status status = other->Lock();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "directory " + path_ + ": another process is using it");
  directory_.reset();
  EXPECT_TRUE(other->Lock().ok());
}

// A file-size limit causes the errors of a full disk and of an exhausted quota, and needs no
// privileges.
TEST_F(PosixDirectoryTest, SaysThatThereIsNoRoomAndWritesOnOnceThereIs) {
  ASSERT_NE(std::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  const std::unique_ptr<File> file = std::move(directory_->Create("file")).value();
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit low = {1000, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const std::string bytes(3000, 'x');
  const absl::Status status = file->Write(0, {bytes});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "writing " + path_ + "/file: File too large");
  EXPECT_EQ(*file->Size(), 1000u);
  ASSERT_TRUE(file->Write(0, {bytes}).ok());
  EXPECT_EQ(*file->Size(), 3000u);
}

}  // namespace
}  // namespace kaon::disk
