// Through the whole command line: global options may come before and after a command.
#include "server/admin_cli/arguments/checkpoint_arguments.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/admin_cli/options.h"

namespace kaon::admin_cli {
namespace {

ParsedCommandLine Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "kaonctl");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

TEST(CheckpointArgumentsTest, CheckpointCommandsOnFilesNeedNoCluster) {
  const ParsedCommandLine exported = Parse({"checkpoint", "export", "run-1-42", "--checkpoint-dir",
                                            "/ckpt", "--out", "w", "--dtype", "bfloat16"});
  ASSERT_TRUE(exported.options.has_value()) << exported.text;
  EXPECT_EQ(exported.options->command, Command::kCheckpointExport);
  EXPECT_EQ(exported.options->checkpoint, "run-1-42");
  EXPECT_EQ(exported.options->checkpoint_directory, "/ckpt");
  EXPECT_EQ(exported.options->file, "w");
  EXPECT_EQ(exported.options->dtype, "bfloat16");
  EXPECT_FALSE(exported.options->with_state);
  const ParsedCommandLine with_state =
      Parse({"checkpoint", "export", "a", "--checkpoint-dir", "/ckpt", "--out", "w", "--state"});
  ASSERT_TRUE(with_state.options.has_value()) << with_state.text;
  EXPECT_TRUE(with_state.options->with_state);
  const ParsedCommandLine imported = Parse({"checkpoint", "import", "w", "--job", "job.json",
                                            "--checkpoint-dir", "/ckpt", "--id", "start"});
  ASSERT_TRUE(imported.options.has_value()) << imported.text;
  EXPECT_EQ(imported.options->command, Command::kCheckpointImport);
  EXPECT_EQ(imported.options->job_file, "job.json");
  EXPECT_EQ(imported.options->job, "");
  EXPECT_EQ(imported.options->checkpoint, "start");
}

TEST(CheckpointArgumentsTest, OtherCheckpointCommandsAskTheCoordinator) {
  const ParsedCommandLine verify = Parse({"checkpoint", "verify", "a", "--endpoints", "c:1"});
  ASSERT_TRUE(verify.options.has_value()) << verify.text;
  EXPECT_EQ(verify.options->command, Command::kCheckpointVerify);
  EXPECT_EQ(verify.options->checkpoint, "a");
  const ParsedCommandLine restore =
      Parse({"checkpoint", "restore", "--allow-other-build", "--endpoints", "c:1"});
  ASSERT_TRUE(restore.options.has_value()) << restore.text;
  EXPECT_EQ(restore.options->command, Command::kCheckpointRestore);
  EXPECT_TRUE(restore.options->allow_other_build);
  EXPECT_FALSE(verify.options->allow_other_build);
  EXPECT_FALSE(Parse({"checkpoint", "list"}).options.has_value());
  EXPECT_FALSE(Parse({"checkpoint", "verify", "--endpoints", "c:1"}).options.has_value());
  EXPECT_FALSE(Parse({"checkpoint", "export", "a", "--out", "w"}).options.has_value());
}

}  // namespace
}  // namespace kaon::admin_cli
