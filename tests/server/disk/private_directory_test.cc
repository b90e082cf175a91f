#include "server/disk/private_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

// Paths that were synced, in order.
std::vector<std::string>& Synced() {
  static std::vector<std::string> synced;
  return synced;
}

// Error number of the next sync; 0 = it succeeds.
int failure = 0;

}  // namespace

// In place of the C library's: no test can cut the power.
extern "C" int fsync(int fd) {
  Synced().push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)));
  if (failure == 0) return static_cast<int>(syscall(SYS_fsync, fd));
  errno = failure;
  return -1;
}

namespace kaon::disk {
namespace {

class PrivateDirectoryTest : public testing::Test {
 protected:
  const std::string path_ =
      testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(PrivateDirectoryTest, IsCreatedForItsOwnerAlone) {
  ASSERT_TRUE(CreatePrivateDirectory("data_dir", path_).ok());
  ASSERT_TRUE(CreatePrivateDirectory("data_dir", path_).ok());
  struct stat directory;
  ASSERT_EQ(stat(path_.c_str(), &directory), 0);
  EXPECT_EQ(directory.st_mode & 0777, 0700u);
}

TEST_F(PrivateDirectoryTest, ItsNameIsDurable) {
  const std::string parent = std::filesystem::canonical(testing::TempDir());
  // The maker of an existing directory may never have synced it.
  for (const std::string& path : {path_, path_, path_ + "/"}) {
    Synced().clear();
    ASSERT_TRUE(CreatePrivateDirectory("data_dir", path).ok());
    EXPECT_EQ(Synced(), std::vector<std::string>{parent}) << path;
  }
  Synced().clear();
  ASSERT_TRUE(CreatePrivateDirectory("data_dir", path_ + "/inner//").ok());
  EXPECT_EQ(Synced(), std::vector<std::string>{std::filesystem::canonical(path_)});
  std::filesystem::current_path(path_);
  Synced().clear();
  ASSERT_TRUE(CreatePrivateDirectory("data_dir", "relative").ok());
  EXPECT_EQ(Synced(), std::vector<std::string>{std::filesystem::canonical(path_)});
  failure = EIO;
  const absl::Status status = CreatePrivateDirectory("data_dir", "another");
  failure = 0;
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "data_dir another: syncing directory .: Input/output error");
}

TEST_F(PrivateDirectoryTest, IsRefusedWhenOpenToOthers) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  for (const mode_t mode : {0750, 0701}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_EQ(CreatePrivateDirectory("data_dir", path_).code(),
              absl::StatusCode::kFailedPrecondition);
  }
  const std::string refusal = "data_dir " + path_ + " has mode 0701, expecting 0700";
  EXPECT_EQ(CreatePrivateDirectory("data_dir", path_).message(), refusal);
  EXPECT_EQ(CheckPrivateDirectory("data_dir", path_).message(), refusal);
}

TEST_F(PrivateDirectoryTest, IsRefusedWhenItIsAFileOrItsParentIsMissing) {
  std::ofstream(path_) << "file";
  EXPECT_EQ(CreatePrivateDirectory("data_dir", path_).message(),
            "data_dir " + path_ + " is not a directory");
  EXPECT_EQ(CreatePrivateDirectory("data_dir", path_ + "/none/deeper").message(),
            "creating data_dir " + path_ + "/none/deeper: Not a directory");
}

TEST_F(PrivateDirectoryTest, ACheckCreatesNothingAndRefusesWithTheSameWords) {
  EXPECT_EQ(CheckPrivateDirectory("data_dir", path_), absl::OkStatus());
  EXPECT_FALSE(std::filesystem::exists(path_));
  std::ofstream(path_ + ".file") << "file";
  for (const std::string& path : {path_ + "/none", path_ + ".file", path_ + ".file/none"}) {
    const absl::Status status = CheckPrivateDirectory("data_dir", path);
    EXPECT_FALSE(status.ok()) << path;
    EXPECT_EQ(status, CreatePrivateDirectory("data_dir", path));
  }
}

}  // namespace
}  // namespace kaon::disk
