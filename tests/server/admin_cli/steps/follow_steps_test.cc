#include "server/admin_cli/steps/follow_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

namespace kaon::admin_cli {
namespace {

// A log that grows by some entries before each question.
class GrowingLog {
 public:
  explicit GrowingLog(std::vector<int> growth) : growth_(std::move(growth)) {}

  absl::StatusOr<v1::StepHistoryResponse> Read(uint32_t limit) {
    limits_.push_back(limit);
    if (!failures_.empty()) {
      const absl::Status failure = failures_.back();
      failures_.pop_back();
      return failure;
    }
    v1::StepHistoryResponse history;
    for (int position = std::max(1, newest_ - static_cast<int>(limit) + 1); position <= newest_;
         ++position) {
      v1::StepRecord& record = *history.add_records();
      record.mutable_plan()->set_position(position);
      record.mutable_plan()->mutable_step()->set_step(position);
    }
    return history;
  }
  absl::Status Follow(uint32_t limit) {
    size_t turn = 0;
    newest_ += growth_[turn++];
    return FollowSteps([this](uint32_t most) { return Read(most); }, limit,
                       [this, &turn] {
                         if (turn == growth_.size()) return false;
                         newest_ += growth_[turn++];
                         return true;
                       },
                       out_, errors_);
  }
  int Lines() const {
    const std::string text = out_.str();
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }

  std::vector<int> growth_;
  int newest_ = 0;
  std::vector<absl::Status> failures_;
  std::vector<uint32_t> limits_;
  std::ostringstream out_;
  std::ostringstream errors_;
};

TEST(FollowStepsTest, PrintsEachEntryOnce) {
  GrowingLog log({30, 1, 0, 4});
  EXPECT_EQ(log.Follow(20), absl::OkStatus());
  EXPECT_EQ(log.Lines(), 25);
  EXPECT_EQ(log.out_.str().rfind("{\"position\":11,", 0), 0u);
  EXPECT_EQ(log.errors_.str(), "");
}

TEST(FollowStepsTest, AsksForMoreIfTheJobIsFast) {
  GrowingLog log({10, 400});
  EXPECT_EQ(log.Follow(20), absl::OkStatus());
  EXPECT_EQ(log.Lines(), 410);
  EXPECT_EQ(log.limits_, (std::vector<uint32_t>{20, 50, 1000}));
}

TEST(FollowStepsTest, SaysThatEntriesAreMissing) {
  GrowingLog log({10, 3000});
  EXPECT_EQ(log.Follow(20), absl::OkStatus());
  EXPECT_EQ(log.Lines(), 1010);
  EXPECT_NE(log.errors_.str().find("entries are missing"), std::string::npos);
}

TEST(FollowStepsTest, AsksAgainWhileNobodyAnswers) {
  GrowingLog log({10, 1, 1, 1});
  log.failures_ = {absl::UnavailableError("away"), absl::UnavailableError("away")};
  EXPECT_EQ(log.Follow(20), absl::OkStatus());
  EXPECT_EQ(log.Lines(), 13);
  EXPECT_EQ(log.errors_.str(), "kaonctl: UNAVAILABLE: away; asking again\n");
}

}  // namespace
}  // namespace kaon::admin_cli
