#include "server/journal/shard_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "tests/server/journal/journal_files.h"

namespace kaon::journal {
namespace {

class ShardDirectoryTest : public testing::Test {
 protected:
  const std::string path_ = TemporaryDirectory()->path() + "/shard";
};

TEST_F(ShardDirectoryTest, IsCreatedForItsOwnerAlone) {
  ASSERT_TRUE(ShardDirectory::Open(path_).ok());
  struct stat state;
  ASSERT_EQ(stat(path_.c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0700u);
  ASSERT_EQ(chmod(path_.c_str(), 0750), 0);
  EXPECT_EQ(ShardDirectory::Open(path_).status().message(),
            "data_dir " + path_ + " has mode 0750, expecting 0700");
}

TEST_F(ShardDirectoryTest, IsOfOneProcessAtATime) {
  absl::StatusOr<std::unique_ptr<ShardDirectory>> first = ShardDirectory::Open(path_);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = ShardDirectory::Open(path_).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(second.message(), "directory " + path_ + ": another process is using it");
  first->reset();
  EXPECT_TRUE(ShardDirectory::Open(path_).ok());
}

TEST_F(ShardDirectoryTest, SaysWhetherThereIsAJournalOrWhatIsLeftOfOne) {
  const std::unique_ptr<ShardDirectory> directory = std::move(ShardDirectory::Open(path_)).value();
  EXPECT_FALSE(*directory->HoldsJournal());
  WriteFile(path_ + "/incarnation", "kaon incarnation 1\n");
  WriteFile(path_ + "/journal-1", "");
  EXPECT_FALSE(*directory->HoldsJournal());
  for (const std::string name : {"identity", "durable", "journal-0000000000000001"}) {
    WriteFile(path_ + "/" + name, "");
    EXPECT_TRUE(*directory->HoldsJournal()) << name;
    ASSERT_TRUE(directory->files().Remove(name).ok());
  }
}

TEST(RandomDirectoryIdTest, DiffersEachTime) {
  EXPECT_NE(RandomDirectoryId().Hash(), RandomDirectoryId().Hash());
}

}  // namespace
}  // namespace kaon::journal
