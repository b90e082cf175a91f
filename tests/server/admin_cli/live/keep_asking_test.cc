#include "server/admin_cli/live/keep_asking.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace kaon::admin_cli {
namespace {

struct Asked {
  absl::Status status;
  size_t times = 0;
  std::string errors;
};

Asked Ask(const std::vector<absl::Status>& answers, bool closed = false) {
  std::ostringstream out;
  if (closed) out.setstate(std::ios::badbit);
  std::ostringstream errors;
  Asked asked;
  asked.status = KeepAsking([&] { return answers[asked.times++]; },
                            [&] { return asked.times < answers.size(); }, out, errors);
  asked.errors = errors.str();
  return asked;
}

TEST(KeepAskingTest, SaysOnceThatNobodyAnswersAndAsksAgain) {
  const Asked asked =
      Ask({absl::OkStatus(), absl::UnavailableError("away"), absl::DeadlineExceededError("late"),
           absl::OkStatus(), absl::ResourceExhaustedError("busy")});
  EXPECT_EQ(asked.status, absl::OkStatus());
  EXPECT_EQ(asked.times, 5u);
  EXPECT_EQ(asked.errors,
            "kaonctl: UNAVAILABLE: away; asking again\n"
            "kaonctl: RESOURCE_EXHAUSTED: busy; asking again\n");
}

TEST(KeepAskingTest, EndsWithAnErrorThatStays) {
  const Asked asked = Ask({absl::OkStatus(), absl::PermissionDeniedError("no"), absl::OkStatus()});
  EXPECT_EQ(asked.status, absl::PermissionDeniedError("no"));
  EXPECT_EQ(asked.times, 2u);
  EXPECT_EQ(asked.errors, "");
}

TEST(KeepAskingTest, EndsWhenNobodyReadsTheOutput) {
  EXPECT_EQ(Ask({absl::OkStatus(), absl::OkStatus()}, /*closed=*/true).times, 1u);
}

}  // namespace
}  // namespace kaon::admin_cli
