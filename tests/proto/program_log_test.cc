#include "proto/program_log.h"

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace kaon::proto {
namespace {

using ::testing::MatchesRegex;

TEST(ProgramLogTest, ALineBeginsWithItsTimeInUtc) {
  setenv("TZ", "Asia/Tokyo", 1);
  const absl::Time before = absl::Now() - absl::Seconds(1);
  testing::internal::CaptureStderr();
  LOG(WARNING) << "odd";
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_THAT(line, MatchesRegex("[0-9-]+T[0-9:.]+Z W [0-9]+ program_log_test.cc:[0-9]+\\] odd\n"));
  absl::Time logged;
  std::string error;
  ASSERT_TRUE(absl::ParseTime(absl::RFC3339_full, line.substr(0, line.find(' ')), &logged, &error))
      << error;
  EXPECT_GE(logged, before);
  EXPECT_LE(logged, absl::Now());
}

}  // namespace
}  // namespace kaon::proto

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  kaon::proto::StartLog(argv[0]);
  return RUN_ALL_TESTS();
}
