#include "server/coordinator/machine/requests/job_deletions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "tests/server/coordinator/machine/machine_harness.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CallId kCall = 7;

// The job is at step 1 of timeline 1; no entry is under way.
class JobDeletionsTest : public testing::Test {
 protected:
  JobDeletionsTest() {
    job_.Read(StateAfterStep(1));
    request_.set_job("tiny");
    request_.set_timeline(1);
    request_.set_request_id(7);
  }

  const v1::StepPlan idle_;
  JobState job_;
  v1::DeleteJobRequest request_;
  JobDeletions deletions_;
};

TEST_F(JobDeletionsTest, IsPlannedOnceAndAnsweredOnce) {
  ASSERT_TRUE(deletions_.Check(request_, job_, idle_).ok());
  deletions_.Wait(kCall, request_, /*planned=*/false);
  ASSERT_TRUE(deletions_.WaitsForItsPlan());
  const absl::StatusOr<v1::StepPlan> plan = deletions_.Plan(job_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->job(), "tiny");
  EXPECT_EQ(plan->job_deletion().request_id(), 7u);
  EXPECT_FALSE(deletions_.WaitsForItsPlan());
  const Actions ended = deletions_.End(absl::OkStatus(), job_);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(std::get<ReplyDelete>(ended[0]).call, kCall);
  EXPECT_EQ(std::get<ReplyDelete>(ended[0]).response->position(), job_.position);
  EXPECT_THAT(deletions_.End(absl::OkStatus(), job_), IsEmpty());
}

// It waited for an entry that took the job back.
TEST_F(JobDeletionsTest, IsNotPlannedInAnotherTimeline) {
  deletions_.Wait(kCall, request_, /*planned=*/false);
  job_.timeline = 2;
  EXPECT_THAT(deletions_.Plan(job_).status().message(),
              HasSubstr("is in timeline 2, it is to be deleted in timeline 1"));
}

TEST_F(JobDeletionsTest, OneIsUnderWayAtATimeAndARequestIdRepeatsIt) {
  v1::StepPlan open;
  open.mutable_job_deletion()->set_request_id(7);
  EXPECT_TRUE(deletions_.Repeats(request_, open));
  EXPECT_FALSE(deletions_.Repeats(request_, idle_));
  EXPECT_EQ(deletions_.Check(request_, job_, open).code(), absl::StatusCode::kAborted);
  deletions_.Wait(kCall, request_, /*planned=*/false);
  EXPECT_TRUE(deletions_.Repeats(request_, idle_));
  EXPECT_EQ(deletions_.Check(request_, job_, idle_).code(), absl::StatusCode::kAborted);
  deletions_.Cancel(kCall);
  EXPECT_TRUE(deletions_.Check(request_, job_, idle_).ok());
  request_.clear_request_id();
  EXPECT_FALSE(deletions_.Repeats(request_, idle_));
}

}  // namespace
}  // namespace kaon::coordinator
