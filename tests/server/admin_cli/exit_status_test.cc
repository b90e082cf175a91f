#include "server/admin_cli/exit_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kaon::admin_cli {
namespace {

using ::testing::HasSubstr;

// Written down a second time on purpose: scripts rely on these numbers.
TEST(ExitStatusTest, EveryCodeHasItsNumber) {
  EXPECT_EQ(ExitStatusOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitStatusOf(absl::InternalError("")), 1);
  EXPECT_EQ(ExitStatusOf(absl::DataLossError("")), 1);
  EXPECT_EQ(ExitStatusOf(absl::FailedPreconditionError("")), 1);
  EXPECT_EQ(ExitStatusOf(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitStatusOf(absl::NotFoundError("")), 3);
  EXPECT_EQ(ExitStatusOf(absl::UnavailableError("")), 4);
  EXPECT_EQ(ExitStatusOf(absl::DeadlineExceededError("")), 4);
  EXPECT_EQ(ExitStatusOf(absl::PermissionDeniedError("")), 5);
  EXPECT_EQ(ExitStatusOf(absl::UnauthenticatedError("")), 5);
  EXPECT_EQ(ExitStatusOf(absl::AbortedError("")), 6);
}

TEST(ExitStatusTest, HelpHasALineForEach) {
  for (const char* line : {"\n  0  done\n", "\n  2  wrong command line", "\n  6  the job has"}) {
    EXPECT_THAT(ExitStatusHelp(), HasSubstr(line));
  }
}

TEST(ExitStatusTest, ErrorIsOneLineOrJson) {
  const absl::Status error = absl::NotFoundError("job \"b\": the job here is \"a\"");
  EXPECT_EQ(ErrorText(error, false), "kaonctl: NOT_FOUND: job \"b\": the job here is \"a\"\n");
  const auto json = nlohmann::json::parse(ErrorText(error, true))["error"];
  EXPECT_EQ(json["code"], "NOT_FOUND");
  EXPECT_EQ(json["message"], "job \"b\": the job here is \"a\"");
  EXPECT_EQ(json["exit_status"], 3);
  EXPECT_EQ(UsageErrorText("no such flag", false), "kaonctl: no such flag\n");
  EXPECT_EQ(nlohmann::json::parse(UsageErrorText("no", true))["error"]["exit_status"], 2);
}

}  // namespace
}  // namespace kaon::admin_cli
