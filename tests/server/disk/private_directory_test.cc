#include "server/disk/private_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

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

TEST_F(PrivateDirectoryTest, IsRefusedWhenOpenToOthers) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  for (const mode_t mode : {0750, 0701}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_EQ(CreatePrivateDirectory("data_dir", path_).code(),
              absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(CreatePrivateDirectory("data_dir", path_).message(),
            "data_dir " + path_ + " has mode 0701, expecting 0700");
}

TEST_F(PrivateDirectoryTest, IsRefusedWhenItIsAFileOrItsParentIsMissing) {
  std::ofstream(path_) << "file";
  EXPECT_EQ(CreatePrivateDirectory("data_dir", path_).message(),
            "data_dir " + path_ + " is not a directory");
  EXPECT_EQ(CreatePrivateDirectory("data_dir", path_ + "/none/deeper").message(),
            "creating data_dir " + path_ + "/none/deeper: Not a directory");
}

}  // namespace
}  // namespace kaon::disk
