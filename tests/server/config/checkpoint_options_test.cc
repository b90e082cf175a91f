#include "server/config/checkpoint_options.h"

#include <gtest/gtest.h>

namespace kaon::config {
namespace {

TEST(CheckpointOptionsTest, NothingGivenIsNoDirectoryAndThreeKept) {
  CheckpointOptions options;
  ASSERT_TRUE(ReadCheckpointFlags({}, &options).ok());
  EXPECT_EQ(options.directory, "");
  EXPECT_EQ(options.every_steps, 0u);
  EXPECT_EQ(options.keep, 3u);
}

TEST(CheckpointOptionsTest, TakesWhatIsGiven) {
  CheckpointOptions options;
  ASSERT_TRUE(ReadCheckpointFlags({"/ckpt", "100", "2"}, &options).ok());
  EXPECT_EQ(options.directory, "/ckpt");
  EXPECT_EQ(options.every_steps, 100u);
  EXPECT_EQ(options.keep, 2u);
}

TEST(CheckpointOptionsTest, NamesFlagValueAndRange) {
  CheckpointOptions options;
  EXPECT_EQ(ReadCheckpointFlags({"/ckpt", "", "1"}, &options).message(),
            "checkpoint_keep is \"1\", must be 2 .. 1000");
  EXPECT_EQ(ReadCheckpointFlags({"/ckpt", "often", ""}, &options).message(),
            "checkpoint_every_steps is \"often\", must be 0 .. 1099511627776");
  EXPECT_EQ(ReadCheckpointFlags({"", "10", ""}, &options).message(),
            "checkpoint_every_steps is 10, checkpoint_dir must be given");
}

}  // namespace
}  // namespace kaon::config
