#include "server/coordinator/machine/requests/group_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "server/coordinator/machine/registration.h"
#include "tests/server/coordinator/machine/machine_harness.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CallId kCall = 7;

v1::SetGroupRequest RequestOf(const std::string& group, const std::string& field,
                              const std::string& value, uint64_t revision = 1) {
  v1::SetGroupRequest request;
  request.set_group(group);
  request.set_expected_revision(revision);
  request.add_settings()->set_field(field);
  request.mutable_settings(0)->set_value(value);
  return request;
}

// The job has revision 1 and is at step 1; no entry is under way.
class GroupChangesTest : public testing::Test {
 protected:
  GroupChangesTest() {
    job_.Read(StateAfterStep(1));
    membership_.Reset(job_.WorldSize());
  }

  absl::Status Check(const v1::SetGroupRequest& request) {
    return changes_.Check(request, job_, idle_);
  }
  // Rank 0 begins step 2.
  void Begin(double multiplier, uint32_t micro_batches = 1) {
    v1::JoinWorkerRequest join;
    join.set_process_nonce(100);
    v1::BeginStepRequest begin;
    *begin.mutable_attempt() = membership_.Join(join, {}).value();
    begin.set_process_nonce(100);
    begin.set_step(2);
    begin.set_token_weight(1);
    begin.set_learning_rate_multiplier(multiplier);
    begin.set_micro_batches(micro_batches);
    ASSERT_TRUE(membership_.Begin(begin).ok());
  }
  absl::Status Plan(const v1::SetGroupRequest& request) {
    EXPECT_TRUE(Check(request).ok()) << Check(request);
    changes_.Wait(kCall, request);
    return changes_.Plan(job_, membership_).status();
  }

  const v1::StepPlan idle_;
  JobState job_;
  Membership membership_;
  GroupChanges changes_;
};

TEST_F(GroupChangesTest, ComparesTheRevisionBeforeAnythingElse) {
  job_.config_revision = 3;
  job_.registration->mutable_definition()->mutable_groups(1)->set_lr(0.5);
  EXPECT_EQ(Check(RequestOf("adamw", "lr", "0.25")),
            absl::AbortedError("expected_revision is 1, config_revision is 3"));
  EXPECT_EQ(Check(RequestOf("adamw", "lr", "0.5")),
            absl::AbortedError("expected_revision is 1, config_revision is 3; the change is in "
                               "place"));
  EXPECT_TRUE(Check(RequestOf("adamw", "lr", "0.25", 3)).ok());
}

TEST_F(GroupChangesTest, RefusesWhatIsMalformed) {
  v1::SetGroupRequest request = RequestOf("adamw", "lr", "-1");
  const absl::Status range = Check(request);
  EXPECT_EQ(range.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(range.message(), HasSubstr("lr is -1, must be 0 .. "));
  request.clear_settings();
  EXPECT_THAT(Check(request).message(), HasSubstr("at least 1"));
  EXPECT_EQ(Check(RequestOf("other", "lr", "1")).code(), absl::StatusCode::kNotFound);
}

TEST_F(GroupChangesTest, OneIsUnderWayAtATime) {
  const v1::SetGroupRequest request = RequestOf("adamw", "lr", "0.5");
  v1::StepPlan open;
  open.mutable_group_change();
  EXPECT_THAT(changes_.Check(request, job_, open).message(),
              HasSubstr("another change of it is under way"));
  changes_.Wait(kCall, request);
  EXPECT_EQ(Check(request).code(), absl::StatusCode::kAborted);
  changes_.Cancel(kCall + 1);
  EXPECT_TRUE(changes_.waits());
  changes_.Cancel(kCall);
  EXPECT_TRUE(Check(request).ok());
}

TEST_F(GroupChangesTest, ARequestIdRepeatsWhatWaitsOrIsUnderWay) {
  v1::SetGroupRequest request = RequestOf("adamw", "lr", "0.5");
  v1::StepPlan open;
  open.mutable_group_change()->set_request_id(7);
  EXPECT_FALSE(changes_.Repeats(request, idle_));
  request.set_request_id(7);
  EXPECT_FALSE(changes_.Repeats(request, idle_));
  EXPECT_TRUE(changes_.Repeats(request, open));
  request.set_request_id(8);
  EXPECT_FALSE(changes_.Repeats(request, open));
  changes_.Wait(kCall, request);
  EXPECT_TRUE(changes_.Repeats(request, idle_));
}

TEST_F(GroupChangesTest, AnswersWithTheGroupOrTheWorkersThatTheJobHasThen) {
  changes_.Wait(kCall, RequestOf("adamw", "lr", "0.5"));
  Actions ended = changes_.End(absl::OkStatus(), job_);
  ASSERT_EQ(ended.size(), 1u);
  ReplySetGroup reply = std::get<ReplySetGroup>(ended[0]);
  EXPECT_EQ(reply.call, kCall);
  EXPECT_EQ(reply.response->config_revision(), 1u);
  EXPECT_EQ(reply.response->group().lr(), 0.001);
  EXPECT_THAT(changes_.End(absl::OkStatus(), job_), IsEmpty());
  changes_.Wait(kCall, RequestOf("", "world_size", "2"));
  ended = changes_.End(absl::OkStatus(), job_);
  EXPECT_EQ(std::get<ReplySetGroup>(ended.at(0)).response->workers().world_size(), 2u);
}

TEST_F(GroupChangesTest, RefusesARateThatABegunStepCannotTake) {
  Begin(1e30);
  EXPECT_TRUE(Plan(RequestOf("adamw", "lr", "0.5")).ok());
  changes_.Cancel(kCall);
  const absl::Status status = Plan(RequestOf("adamw", "lr", "1e10"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("learning_rate_multiplier 1e+30"));
}

TEST_F(GroupChangesTest, RefusesARateThatABegunStepTimesAParametersMultiplierCannotTake) {
  v1::JobDefinition definition = TestJob();
  definition.mutable_parameters(1)->set_lr_multiplier(1e20);
  job_.registration = MakeRegistration(definition, PlacementLimits()).value();
  Begin(1e10);
  const absl::Status status = Plan(RequestOf("adamw", "lr", "1e10"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("parameter layer0.b, group adamw: lr 1e+10 * "
                                          "learning_rate_multiplier 1e+10 * lr_multiplier 1e+20"));
}

TEST_F(GroupChangesTest, RefusesMoreWorkersThanTheBegunSharesAllow) {
  Begin(1, /*micro_batches=*/1024);
  EXPECT_THAT(
      Plan(RequestOf("", "world_size", "4096")).message(),
      HasSubstr("micro_batches is 1024, must be 1 .. 204 with 5 parameters and 4096 workers"));
}

}  // namespace
}  // namespace kaon::coordinator
