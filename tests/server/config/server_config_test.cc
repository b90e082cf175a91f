#include "server/config/server_config.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "kaon/v1/config.pb.h"

namespace kaon::config {
namespace {

// Completes a configuration as a server does: one default, one limit.
absl::Status Complete(google::protobuf::Message* message) {
  auto& config = static_cast<v1::ShardConfig&>(*message);
  if (config.host_memory_bytes() == 0) config.set_host_memory_bytes(4096);
  if (!config.has_shm_sessions()) config.set_shm_sessions(5);
  if (config.threads() > 7) return absl::InvalidArgumentError("threads is beyond 7");
  return absl::OkStatus();
}

// Checks a complete configuration as a server does.
absl::Status Check(const google::protobuf::Message& message) {
  const auto& config = static_cast<const v1::ShardConfig&>(message);
  return config.listen() == "taken" ? absl::FailedPreconditionError("listen is taken")
                                    : absl::OkStatus();
}

CommandLine TestCommandLine() {
  return {"kaon-test",
          "test",
          "backend none",
          {{"listen", "address"},
           {"threads", "compute threads"},
           {"host_memory_bytes", "capacity"},
           {"allow_other_build", "switch"},
           {"shm_sessions", "sessions"},
           {"shm_uids", "users"},
           {"tls.ca_file", "authority"}},
          Complete,
          Check,
          {}};
}

std::string WriteFile(const std::string& text) {
  const std::string path = testing::TempDir() + "/config.textproto";
  std::ofstream(path) << text;
  return path;
}

std::optional<int> Parse(std::vector<const char*> arguments, google::protobuf::Message* message) {
  arguments.insert(arguments.begin(), "kaon-test");
  return ParseCommandLine(TestCommandLine(), static_cast<int>(arguments.size()), arguments.data(),
                          message);
}

TEST(ServerConfigTest, FlagBeatsEnvironmentBeatsFile) {
  const std::string file = WriteFile("listen: 'file:1' threads: 1 tls { ca_file: 'file' }");
  setenv("KAON_THREADS", "2", 1);
  setenv("KAON_TLS_CA_FILE", "environment", 1);
  v1::ShardConfig config;
  EXPECT_EQ(Parse({"--config", file.c_str(), "--threads", "3"}, &config), std::nullopt);
  unsetenv("KAON_THREADS");
  unsetenv("KAON_TLS_CA_FILE");
  EXPECT_EQ(config.listen(), "file:1");
  EXPECT_EQ(config.tls().ca_file(), "environment");
  EXPECT_EQ(config.threads(), 3);
}

TEST(ServerConfigTest, RepeatedFieldTakesCommaSeparatedValues) {
  v1::CoordinatorConfig config;
  const char* argv[] = {"kaon-test", "--shards", "a:1, b:2"};
  const auto accept = [](google::protobuf::Message*) { return absl::OkStatus(); };
  EXPECT_EQ(ParseCommandLine({"kaon-test", "test", "", {{"shards", "addresses"}}, accept, {}, {}},
                             3, argv, &config),
            std::nullopt);
  ASSERT_EQ(config.shards_size(), 2);
  EXPECT_EQ(config.shards(1), "b:2");
}

TEST(ServerConfigTest, RepeatedNumbersTakeCommasToo) {
  v1::ShardConfig config;
  EXPECT_EQ(Parse({"--shm-uids", "1000, 1001"}, &config), std::nullopt);
  ASSERT_EQ(config.shm_uids_size(), 2);
  EXPECT_EQ(config.shm_uids(1), 1001u);
  testing::internal::CaptureStderr();
  EXPECT_EQ(Parse({"--shm-uids", "1000,kaon"}, &config), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "kaon-test: shm_uids: 'kaon' is not a number in 0 .. 4294967295\n");
  EXPECT_EQ(Parse({"--shm-uids", "4294967296"}, &config), 2);
}

TEST(ServerConfigTest, AZeroThatIsSaidIsNoDefaultAndIsPrinted) {
  v1::ShardConfig config;
  EXPECT_EQ(Parse({}, &config), std::nullopt);
  EXPECT_EQ(config.shm_sessions(), 5u);
  config.Clear();
  EXPECT_EQ(Parse({"--shm-sessions", "0"}, &config), std::nullopt);
  EXPECT_EQ(config.shm_sessions(), 0u);
  config.Clear();
  testing::internal::CaptureStdout();
  EXPECT_EQ(Parse({"--shm-sessions", "0", "--print-config"}, &config), 0);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(printed, "host_memory_bytes: 4096\nshm_sessions: 0\n");
  config.Clear();
  const std::string file = WriteFile(printed);
  EXPECT_EQ(Parse({"--config", file.c_str()}, &config), std::nullopt);
  EXPECT_EQ(config.shm_sessions(), 0u);
}

TEST(ServerConfigTest, UnknownFieldInFileNamesItAndItsLine) {
  v1::ShardConfig config;
  const absl::Status status = LoadTextproto(WriteFile("threads: 1\nthreds: 2"), &config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("line 2"), std::string::npos) << status;
  EXPECT_NE(status.message().find("threds"), std::string::npos) << status;
}

TEST(ServerConfigTest, MissingFileIsNamed) {
  v1::ShardConfig config;
  const absl::Status status = LoadTextproto("/nowhere/kaon.textproto", &config);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nowhere/kaon.textproto"), std::string::npos);
}

TEST(ServerConfigTest, BadNumberUnknownFlagAndBadFileExitWithTwo) {
  v1::ShardConfig config;
  EXPECT_EQ(Parse({"--threads", "many"}, &config), 2);
  EXPECT_EQ(Parse({"--threads", "4294967296"}, &config), 2);
  EXPECT_EQ(Parse({"--thread", "1"}, &config), 2);
  EXPECT_EQ(Parse({"--config", "/nowhere"}, &config), 2);
}

TEST(ServerConfigTest, ASwitchNeedsNoValue) {
  v1::ShardConfig config;
  EXPECT_EQ(Parse({"--threads", "7"}, &config), std::nullopt);
  EXPECT_FALSE(config.allow_other_build());
  EXPECT_EQ(Parse({"--allow-other-build", "--threads", "7"}, &config), std::nullopt);
  EXPECT_TRUE(config.allow_other_build());
  EXPECT_EQ(Parse({"--allow-other-build=false"}, &config), std::nullopt);
  EXPECT_FALSE(config.allow_other_build());
  setenv("KAON_ALLOW_OTHER_BUILD", "1", 1);
  EXPECT_EQ(Parse({}, &config), std::nullopt);
  unsetenv("KAON_ALLOW_OTHER_BUILD");
  EXPECT_TRUE(config.allow_other_build());
  EXPECT_EQ(Parse({"--allow-other-build=perhaps"}, &config), 2);
}

TEST(ServerConfigTest, HelpAndPrintExitWithZeroAndPrintShowsDefaults) {
  v1::ShardConfig config;
  EXPECT_EQ(Parse({"--help"}, &config), 0);
  testing::internal::CaptureStdout();
  EXPECT_EQ(Parse({"--threads", "7", "--print-config"}, &config), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "host_memory_bytes: 4096\nthreads: 7\nshm_sessions: 5\n");
}

TEST(ServerConfigTest, ChecksWhatTheServerWouldRefuse) {
  v1::ShardConfig config;
  for (const char* flag : {"--check-config", "--print-config"}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(Parse({"--threads", "8", flag}, &config), 2) << flag;
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "kaon-test: threads is beyond 7\n");
  }
  EXPECT_EQ(Parse({"--threads", "8"}, &config), 2);
  EXPECT_EQ(Parse({"--threads", "7", "--check-config"}, &config), 0);
  EXPECT_EQ(Parse({"--threads", "7"}, &config), std::nullopt);
  EXPECT_EQ(config.host_memory_bytes(), 4096u);
  EXPECT_EQ(Parse({"--listen", "taken", "--print-config"}, &config), 0);
  EXPECT_EQ(Parse({"--listen", "taken", "--check-config"}, &config), 2);
}

}  // namespace
}  // namespace kaon::config
