#include "server/shard/shard_files.h"

#include <gtest/gtest.h>

#include <string>

namespace kaon::shard {
namespace {

TEST(ShardFilesTest, SaysWhichDirectoriesItDoesNotHave) {
  const ShardFiles none;
  EXPECT_EQ(none.OpenCheckpoints().status(),
            absl::FailedPreconditionError("this shard has no checkpoint directory"));
  const auto never = [](SnapshotDirectory&) { return absl::InternalError("called"); };
  EXPECT_EQ(none.WithSnapshots(never),
            absl::InvalidArgumentError("this shard keeps no snapshots to roll back to"));
}

TEST(ShardFilesTest, OpensItsDirectoriesAndReturnsWhatTheUserReturns) {
  const std::string path = testing::TempDir();
  const ShardFiles files = {path, path};
  const auto checkpoints = files.OpenCheckpoints();
  ASSERT_TRUE(checkpoints.ok()) << checkpoints.status();
  EXPECT_EQ((*checkpoints)->path(), path);
  const absl::Status status = files.WithSnapshots([&path](SnapshotDirectory& directory) {
    EXPECT_EQ(directory.path(), path);
    return absl::CancelledError("enough");
  });
  EXPECT_EQ(status, absl::CancelledError("enough"));
}

}  // namespace
}  // namespace kaon::shard
