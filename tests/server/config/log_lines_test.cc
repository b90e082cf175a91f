#include "server/config/log_lines.h"

#include <glog/logging.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/config/log_facts.h"

namespace kaon::config {
namespace {

class LogLinesTest : public testing::Test {
 protected:
  // Returns the number of lines that so many messages of a place have, each at `now_`.
  int Lines(int messages, int line = 1, int severity = google::GLOG_WARNING) {
    int lines = 0;
    for (int i = 0; i < messages; ++i) {
      newest_ = log_.LinesOf({severity, "a.cc", line, now_, absl::StrCat("message ", i)});
      for (const char c : newest_) lines += c == '\n';
    }
    return lines;
  }

  absl::Time now_ = absl::FromUnixMillis(1700000000250);
  LogLines log_{"kaon-test", /*json=*/false};
  // Lines that the newest message led to.
  std::string newest_;
};

TEST_F(LogLinesTest, APlaceHasTenLinesASecond) {
  EXPECT_EQ(Lines(25), 10);
  // Other places have their own.
  EXPECT_EQ(Lines(3, /*line=*/2), 3);
  now_ += absl::Milliseconds(999);
  EXPECT_EQ(Lines(1), 0);
}

TEST_F(LogLinesTest, SaysHowManyWereLeftOutOnceTheSecondHasEnded) {
  EXPECT_EQ(Lines(25), 10);
  now_ += absl::Seconds(1);
  EXPECT_EQ(Lines(1, /*line=*/2), 2);
  const std::vector<std::string> lines = absl::StrSplit(newest_, '\n');
  EXPECT_EQ(lines[0].rfind("2023-11-14T22:13:21.250000Z W ", 0), 0u) << lines[0];
  EXPECT_NE(lines[0].find(" a.cc:1] 15 lines of this place were left out"), std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find(" a.cc:2] message 0"), std::string::npos) << lines[1];
  // Once.
  EXPECT_EQ(Lines(1, /*line=*/2), 1);
  EXPECT_EQ(Lines(11), 10);
}

TEST_F(LogLinesTest, AClockThatIsSetBackHoldsNothingUp) {
  EXPECT_EQ(Lines(12), 10);
  now_ -= absl::Hours(1);
  EXPECT_EQ(Lines(1), 2);
}

TEST_F(LogLinesTest, FatalMessagesAndErrorsOfTheFirstMinuteAreAllWritten) {
  EXPECT_EQ(Lines(30, 1, google::GLOG_ERROR), 30);
  now_ += absl::Minutes(1);
  EXPECT_EQ(Lines(30, 1, google::GLOG_ERROR), 10);
  // The count of what was left out comes first.
  EXPECT_EQ(Lines(30, 1, google::GLOG_FATAL), 31);
}

TEST_F(LogLinesTest, LinesUnderALogAlwaysAreAllWritten) {
  EXPECT_EQ(Lines(12), 10);
  const LogAlways always;
  EXPECT_EQ(Lines(12), 12);
}

TEST_F(LogLinesTest, AFatalMessageComesAfterWhatWasLeftOutInItsSecond) {
  EXPECT_EQ(Lines(25), 10);
  EXPECT_EQ(Lines(1, /*line=*/2, google::GLOG_FATAL), 2);
  EXPECT_NE(newest_.find("2023-11-14T22:13:20.250000Z W "), std::string::npos) << newest_;
}

TEST_F(LogLinesTest, CountsAreObjectsOfAJsonLog) {
  LogLines log("kaon-test", /*json=*/true);
  for (int i = 0; i < 12; ++i) log.LinesOf({google::GLOG_INFO, "a.cc", 1, now_, "m"});
  now_ += absl::Seconds(2);
  const LogPeer peer("kaon://cluster/admin");
  const std::vector<std::string> lines =
      absl::StrSplit(log.LinesOf({google::GLOG_INFO, "a.cc", 1, now_, "next"}), '\n');
  const auto count = nlohmann::json::parse(lines.at(0));
  EXPECT_EQ(count["msg"], "2 lines of this place were left out");
  EXPECT_EQ(count["source"], "a.cc:1");
  EXPECT_EQ(count["level"], "warning");
  // Another caller's line is about that caller.
  EXPECT_FALSE(count.contains("peer"));
  EXPECT_EQ(nlohmann::json::parse(lines.at(1))["msg"], "next");
  EXPECT_EQ(nlohmann::json::parse(lines.at(1))["peer"], "kaon://cluster/admin");
}

}  // namespace
}  // namespace kaon::config
