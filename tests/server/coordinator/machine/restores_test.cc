#include "server/coordinator/machine/restores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>

#include "tests/server/coordinator/machine/checkpoint_seven.h"
#include "tests/server/coordinator/machine/machine_harness.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CallId kCall = 7;

PlacementLimits TwoShards() {
  PlacementLimits limits;
  limits.num_shards = 2;
  return limits;
}

// The job is at step 1 of timeline 1; no entry is under way.
class RestoresTest : public testing::Test {
 protected:
  RestoresTest() { job_.Read(StateAfterStep(1)); }

  absl::Status Check(const RestoreOrder& order) { return restores_.Check(order, job_, idle_); }

  const v1::StepPlan idle_;
  JobState job_;
  Restores restores_{TwoShards()};
};

TEST_F(RestoresTest, NamesWhatDoesNotFit) {
  EXPECT_THAT(Check(OrderOfSeven("tiny", 3)).message(),
              HasSubstr("expected_step is 3, the job is at step 1"));
  EXPECT_THAT(Check(OrderOfSeven("", 0)).message(), HasSubstr("the job that runs is \"tiny\""));
  RestoreOrder other = OrderOfSeven("tiny", 0);
  v1::CheckpointManifest manifest = *other.manifest;
  manifest.mutable_registration()->mutable_definition()->mutable_parameters(0)->set_shape(0, 9);
  other.manifest = std::make_shared<v1::CheckpointManifest>(manifest);
  EXPECT_THAT(Check(other).message(), HasSubstr("parameters[0].shape[0]: 8 -> 9"));
  job_ = JobState();
  EXPECT_THAT(Check(OrderOfSeven("tiny", 0)).message(), HasSubstr("no job runs"));
}

// The log was looked through before the checkpoint was read, which takes time.
TEST_F(RestoresTest, IsRefusedOnceTheJobIsInAnotherTimelineThanWhenTheLogWasRead) {
  RestoreOrder order = OrderOfSeven("tiny", 0);
  order.timeline = 1;
  EXPECT_TRUE(Check(order).ok());
  job_.timeline = 5;
  EXPECT_EQ(
      Check(order),
      absl::UnavailableError("the job was in timeline 1 when the checkpoint was read, it is in 5"));
}

TEST_F(RestoresTest, OneIsUnderWayAtATime) {
  const RestoreOrder order = OrderOfSeven("tiny", 0);
  v1::StepPlan open;
  open.mutable_restore();
  EXPECT_EQ(restores_.Check(order, job_, open).code(), absl::StatusCode::kAborted);
  restores_.Wait(kCall, order, /*planned=*/false);
  EXPECT_EQ(Check(order).code(), absl::StatusCode::kAborted);
  restores_.Cancel(kCall);
  EXPECT_TRUE(Check(order).ok());
}

TEST_F(RestoresTest, ARequestIdRepeatsWhatWaitsOrIsUnderWayOrIsDone) {
  RestoreOrder order = OrderOfSeven("tiny", 0);
  v1::StepPlan open;
  open.mutable_restore()->set_request_id(7);
  EXPECT_FALSE(restores_.Repeats(order, open));
  EXPECT_FALSE(restores_.Repeats(order, idle_));
  order.request.set_request_id(7);
  EXPECT_TRUE(restores_.Repeats(order, open));
  EXPECT_FALSE(restores_.IsDone(order, job_));
  v1::StepRecord record;
  *record.mutable_plan() = open;
  job_.record = DecidedRecord(record);
  EXPECT_TRUE(restores_.IsDone(order, job_));
  restores_.Wait(kCall, order, /*planned=*/false);
  EXPECT_TRUE(restores_.Repeats(order, idle_));
  EXPECT_FALSE(restores_.IsDone(order, job_));
}

TEST_F(RestoresTest, IsPlannedOnceAndAnsweredOnce) {
  restores_.Wait(kCall, OrderOfSeven("tiny", 0), /*planned=*/false);
  ASSERT_TRUE(restores_.WaitsForItsPlan());
  const absl::StatusOr<v1::StepPlan> plan = restores_.Plan(job_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->timeline(), 5u);
  EXPECT_EQ(plan->restore().step(), 7u);
  EXPECT_FALSE(restores_.WaitsForItsPlan());
  EXPECT_TRUE(restores_.waits());
  const Actions ended = restores_.End(absl::OkStatus(), job_);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(std::get<ReplyRestore>(ended[0]).call, kCall);
  EXPECT_EQ(std::get<ReplyRestore>(ended[0]).response->position(), job_.position);
  EXPECT_THAT(restores_.End(absl::OkStatus(), job_), IsEmpty());
}

}  // namespace
}  // namespace kaon::coordinator
