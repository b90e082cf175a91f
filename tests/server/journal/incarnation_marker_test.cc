#include "server/journal/incarnation_marker.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace kaon::journal {
namespace {

class IncarnationMarkerTest : public testing::Test {
 protected:
  const std::string data_dir_ =
      testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(IncarnationMarkerTest, CreatesAPrivateDirectory) {
  ASSERT_TRUE(IncarnationMarker::Open(data_dir_).ok());
  struct stat directory;
  ASSERT_EQ(stat(data_dir_.c_str(), &directory), 0);
  EXPECT_EQ(directory.st_mode & 0777, 0700u);
}

TEST_F(IncarnationMarkerTest, TellsTheNextProcessOnlyAfterItWasWritten) {
  absl::StatusOr<IncarnationMarker> marker = IncarnationMarker::Open(data_dir_);
  ASSERT_TRUE(marker.ok()) << marker.status();
  EXPECT_FALSE(marker->held_state());
  EXPECT_FALSE(IncarnationMarker::Open(data_dir_)->held_state());
  ASSERT_TRUE(marker->Write().ok());
  ASSERT_TRUE(marker->Write().ok());
  EXPECT_FALSE(marker->held_state());
  EXPECT_TRUE(IncarnationMarker::Open(data_dir_)->held_state());
}

TEST_F(IncarnationMarkerTest, RefusesADirectoryOpenToOthers) {
  ASSERT_EQ(mkdir(data_dir_.c_str(), 0755), 0);
  ASSERT_EQ(chmod(data_dir_.c_str(), 0755), 0);
  const absl::Status status = IncarnationMarker::Open(data_dir_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "data_dir " + data_dir_ + " has mode 0755, expecting 0700");
}

TEST_F(IncarnationMarkerTest, RefusesWhatIsNoDirectoryAndWhatHasNoParent) {
  std::ofstream(data_dir_) << "file";
  EXPECT_EQ(IncarnationMarker::Open(data_dir_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(IncarnationMarker::Open(data_dir_ + "/none/deeper").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(IncarnationMarkerTest, IsTheFileThatTheFormatsPageDescribes) {
  absl::StatusOr<IncarnationMarker> marker = IncarnationMarker::Open(data_dir_);
  ASSERT_TRUE(marker.ok() && marker->Write().ok());
  std::string line;
  std::getline(std::ifstream(data_dir_ + "/incarnation"), line);
  EXPECT_EQ(line, "kaon incarnation 1");
}

TEST_F(IncarnationMarkerTest, RefusesTheFileOfAnotherVersion) {
  ASSERT_TRUE(IncarnationMarker::Open(data_dir_).ok());
  const std::string path = data_dir_ + "/incarnation";
  for (const std::string line : {"kaon incarnation 2", "kaon incarnation 10", "something else"}) {
    std::ofstream(path) << line << "\nmore\n";
    const absl::Status status = IncarnationMarker::Open(data_dir_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.message(), "marker " + path + " starts with the line '" + line +
                                    "', expecting 'kaon incarnation 1'");
  }
}

TEST_F(IncarnationMarkerTest, TakesATornFileForAPromise) {
  ASSERT_TRUE(IncarnationMarker::Open(data_dir_).ok());
  for (const std::string torn : {"", "kaon inc"}) {
    std::ofstream(data_dir_ + "/incarnation") << torn;
    const absl::StatusOr<IncarnationMarker> marker = IncarnationMarker::Open(data_dir_);
    ASSERT_TRUE(marker.ok()) << marker.status();
    EXPECT_TRUE(marker->held_state());
  }
}

TEST_F(IncarnationMarkerTest, SaysWhenItCannotBeWritten) {
  absl::StatusOr<IncarnationMarker> marker = IncarnationMarker::Open(data_dir_);
  ASSERT_EQ(rmdir(data_dir_.c_str()), 0);
  const absl::Status status = marker->Write();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(marker->path()), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace kaon::journal
