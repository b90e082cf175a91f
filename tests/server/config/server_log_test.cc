#include "server/config/server_log.h"

#include <glog/logging.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/program_log.h"

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

}  // namespace
}  // namespace kaon::config

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  kaon::proto::StartLog(argv[0]);
  return RUN_ALL_TESTS();
}
