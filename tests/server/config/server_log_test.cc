#include "server/config/server_log.h"

#include <glog/logging.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "proto/program_log.h"
#include "server/config/log_facts.h"

namespace kaon::config {
namespace {

// Returns what is logged at every severity.
std::string LoggedAt(const std::string& level) {
  EXPECT_EQ(SetLogLevel(level), absl::OkStatus());
  testing::internal::CaptureStderr();
  VLOG(1) << "step";
  LOG(INFO) << "summary";
  LOG(WARNING) << "odd";
  LOG(ERROR) << "bad";
  std::string words;
  const std::string text = testing::internal::GetCapturedStderr();
  for (const char* word : {"step", "summary", "odd", "bad"}) {
    if (text.find(absl::StrCat("] ", word)) != std::string::npos)
      absl::StrAppend(&words, word, " ");
  }
  return words;
}

TEST(ServerLogTest, LogsTheLevelAndAbove) {
  EXPECT_EQ(LoggedAt("debug"), "step summary odd bad ");
  EXPECT_EQ(LoggedAt("info"), "summary odd bad ");
  EXPECT_EQ(LoggedAt(""), "summary odd bad ");
  EXPECT_EQ(LoggedAt("warning"), "odd bad ");
  EXPECT_EQ(LoggedAt("error"), "bad ");
}

TEST(ServerLogTest, RefusesALevelThatIsNoneAndKeepsTheLast) {
  EXPECT_EQ(LoggedAt("warning"), "odd bad ");
  EXPECT_EQ(SetLogLevel("loud").message(),
            "log_level is \"loud\", must be debug, info, warning or error");
  EXPECT_EQ(CheckLogLevel("loud"), SetLogLevel("loud"));
  EXPECT_EQ(FLAGS_minloglevel, google::GLOG_WARNING);
}

TEST(ServerLogTest, WritesAnObjectALine) {
  EXPECT_EQ(SetLogLevel("info"), absl::OkStatus());
  EXPECT_EQ(SetLogFormat("json", "kaon-test"), absl::OkStatus());
  testing::internal::CaptureStderr();
  VLOG(1) << "step";
  LOG(WARNING) << "a \"b\"\n\xff";
  LOG(INFO) << "c";
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(SetLogFormat("text", "kaon-test"), absl::OkStatus());
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_EQ(lines.size(), 3u) << text;
  const auto first = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(first["level"], "warning");
  EXPECT_EQ(first["program"], "kaon-test");
  EXPECT_EQ(first["msg"], "a \"b\"\n\uFFFD");
  EXPECT_EQ(std::string(first["source"]).rfind("server_log_test.cc:", 0), 0u);
  absl::Time time;
  std::string why;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, std::string(first["ts"]), &time, &why)) << why;
  EXPECT_EQ(nlohmann::json::parse(lines[1])["msg"], "c");
  EXPECT_EQ(lines[2], "");
  // Text again.
  EXPECT_EQ(LoggedAt("info"), "summary odd bad ");
}

TEST(ServerLogTest, AnObjectHasTheFactsThatAreKnown) {
  const auto line_of = [](absl::string_view message) {
    testing::internal::CaptureStderr();
    LOG(INFO) << message;
    return nlohmann::json::parse(testing::internal::GetCapturedStderr());
  };
  EXPECT_EQ(SetLogLevel("info"), absl::OkStatus());
  EXPECT_EQ(SetLogFormat("json", "kaon-test"), absl::OkStatus());
  const nlohmann::json bare = line_of("a");
  for (const char* key : {"job", "step", "shard", "peer", "trace_id"})
    EXPECT_FALSE(bare.contains(key)) << key;
  SetLogJob("run", 7);
  SetLogShard(2);
  nlohmann::json full;
  {
    const LogPeer from("spiffe://kaon.local/kaon/admin");
    const LogTrace part_of("0af7651916cd43dd8448eb211c80319c");
    full = line_of("b");
  }
  EXPECT_EQ(SetLogFormat("text", "kaon-test"), absl::OkStatus());
  EXPECT_EQ(full["job"], "run");
  EXPECT_EQ(full["step"], 7);
  EXPECT_EQ(full["shard"], 2);
  EXPECT_EQ(full["peer"], "spiffe://kaon.local/kaon/admin");
  EXPECT_EQ(full["trace_id"], "0af7651916cd43dd8448eb211c80319c");
}

TEST(ServerLogTest, LimitsTheLinesOfAPlaceInTextToo) {
  EXPECT_EQ(SetLogLevel("info"), absl::OkStatus());
  EXPECT_EQ(SetLogFormat("text", "kaon-test"), absl::OkStatus());
  testing::internal::CaptureStderr();
  for (int i = 0; i < 1000; ++i) LOG(INFO) << "again";
  const std::string text = testing::internal::GetCapturedStderr();
  const std::vector<std::string> lines = absl::StrSplit(text, "] again");
  // More than ten if the machine takes seconds for this.
  EXPECT_GE(lines.size(), 11u);
  EXPECT_LT(lines.size(), 1000u);
}

TEST(ServerLogTest, TellsTheLevelThatIsSet) {
  for (const char* level : {"debug", "info", "warning", "error"}) {
    EXPECT_EQ(SetLogLevel(level), absl::OkStatus());
    EXPECT_EQ(LogLevel(), level);
  }
}

TEST(ServerLogTest, RefusesAFormThatIsNone) {
  EXPECT_EQ(CheckLogFormat(""), absl::OkStatus());
  EXPECT_EQ(SetLogFormat("xml", "kaon-test").message(),
            "log_format is \"xml\", must be text or json");
}

}  // namespace
}  // namespace kaon::config

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  kaon::proto::StartLog(argv[0]);
  return RUN_ALL_TESTS();
}
