#include "server/admin_cli/checkpoint_command.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace kaon::admin_cli {
namespace {

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

v1::CheckpointSummary Summary() {
  v1::CheckpointSummary summary;
  summary.set_id("run-1-42");
  summary.set_job("run");
  summary.set_timeline(1);
  summary.set_position(42);
  summary.set_step(40);
  summary.set_bytes(123456);
  summary.set_created_unix_millis(1795749300000);
  summary.set_num_shards(2);
  summary.set_weights_digest(0xabc);
  summary.set_state_digest(0xdef);
  return summary;
}

TEST(CheckpointCommandTest, ReadsADefinitionAsTextprotoOrJson) {
  const auto text = ReadJobFile(Write("job.textproto", "name: 'run' world_size: 3"));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->world_size(), 3u);
  const auto json = ReadJobFile(Write("job.json", R"({"name": "run", "worldSize": 3})"));
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->SerializeAsString(), text->SerializeAsString());
}

TEST(CheckpointCommandTest, NamesTheJobFileThatIsWrong) {
  EXPECT_EQ(ReadJobFile("/absent/job.json").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadJobFile("/absent/job.textproto").status().code(), absl::StatusCode::kNotFound);
  const std::string path = Write("bad.json", R"({"wordSize": 3})");
  const absl::Status status = ReadJobFile(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("wordSize"), absl::string_view::npos) << status;
}

TEST(CheckpointCommandTest, FilesAreLookedForWhereTheyWereNamed) {
  Options options;
  options.checkpoint_directory = testing::TempDir() + "/absent";
  options.checkpoint = "a";
  options.file = testing::TempDir() + "/out.safetensors";
  options.job_file = Write("job.textproto", "name: 'run'");
  EXPECT_EQ(ExportCheckpoint(options).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ImportCheckpoint(options).status().code(), absl::StatusCode::kNotFound);
  options.checkpoint_directory = testing::TempDir();
  EXPECT_EQ(ExportCheckpoint(options).status().code(), absl::StatusCode::kNotFound);
  options.file = testing::TempDir() + "/";
  EXPECT_EQ(ImportCheckpoint(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CheckpointCommandTest, ListHasEveryKeyAndProblemsAlone) {
  v1::ListCheckpointsResponse response;
  *response.add_checkpoints()->mutable_checkpoint() = Summary();
  v1::CheckpointRow& bad = *response.add_checkpoints();
  bad.mutable_checkpoint()->set_id("old");
  bad.set_problem("DATA_LOSS: file old.manifest");
  EXPECT_EQ(CheckpointsJson(response).dump(),
            R"({"checkpoints":[{"id":"run-1-42","job":"run","timeline":1,"position":42,"step":40,)"
            R"("bytes":123456,"shards":2,"weights_digest":"0000000000000abc",)"
            R"("state_digest":"0000000000000def","created":"2026-11-27T03:15:00Z","problem":""},)"
            R"({"id":"old","problem":"DATA_LOSS: file old.manifest"}]})");
  EXPECT_EQ(
      CheckpointsText(response),
      "ID        JOB  TIMELINE  POSITION  STEP      BYTES  SHARDS  CREATED               WEIGHTS "
      "DIGEST    PROBLEM\n"
      "run-1-42  run         1        42    40  120.6 KiB       2  2026-11-27T03:15:00Z  "
      "0000000000000abc\n"
      "old       -           -         -     -          -       -  -                     -         "
      " "
      "       DATA_LOSS: file old.manifest\n");
}

TEST(CheckpointCommandTest, OneCheckpointIsItsFacts) {
  EXPECT_EQ(CheckpointJson(Summary())["state_digest"], "0000000000000def");
  EXPECT_EQ(CheckpointText(Summary()).rfind("checkpoint      run-1-42\njob             run\n", 0),
            0u);
}

TEST(CheckpointCommandTest, ExportSaysWhatSha256sumWouldSay) {
  const ExportedFile file = {"w.safetensors", 4096, "0a0b"};
  EXPECT_EQ(ExportedText(file), "w.safetensors: 4096 bytes, sha256 0a0b\n");
  EXPECT_EQ(ExportedJson(file).dump(), R"({"file":"w.safetensors","bytes":4096,"sha256":"0a0b"})");
}

}  // namespace
}  // namespace kaon::admin_cli
