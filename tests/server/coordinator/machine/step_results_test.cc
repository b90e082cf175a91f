#include "server/coordinator/machine/step_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "tests/server/coordinator/machine/machine_harness.h"

namespace kaon::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::StepRecord ChangeAt(uint64_t position) {
  v1::StepRecord record;
  record.mutable_plan()->set_position(position);
  record.mutable_plan()->set_timeline(1);
  record.mutable_plan()->mutable_group_change();
  return record;
}

// Two workers have begun step 2, which is planned; step 1 is the newest.
class StepResultsTest : public testing::Test {
 protected:
  StepResultsTest() {
    job_.Read(StateAfterStep(1));
    results_.Find(job_);
    membership_.Reset(2);
    for (const uint32_t rank : {0, 1}) {
      v1::JoinWorkerRequest join;
      join.set_rank(rank);
      join.set_process_nonce(100 + rank);
      attempts_[rank] = membership_.Join(join, {}).value();
      v1::BeginStepRequest begin;
      begin.set_rank(rank);
      begin.set_step(2);
      EXPECT_TRUE(membership_.Begin(begin).ok());
    }
    plan_.mutable_step()->set_step(2);
    for (v1::Member& member : membership_.MembersOf(2))
      *plan_.mutable_step()->add_members() = member;
  }

  Actions Await(CallId call, uint32_t rank, uint64_t step) {
    v1::AwaitStepRequest request;
    request.set_rank(rank);
    *request.mutable_attempt() = attempts_[rank];
    request.set_step(step);
    return results_.Await(call, request, plan_, job_, membership_);
  }
  void DecideStep2() {
    job_.Append(StateAfterStep(2).applied_record());
    results_.Decided(job_.record);
  }

  JobState job_;
  Membership membership_;
  StepResults results_;
  v1::Attempt attempts_[2];
  v1::StepPlan plan_;
};

absl::Status FailureOf(const CoordinatorAction& action) {
  return std::get<AwaitFailed>(action).status;
}

TEST_F(StepResultsTest, AStreamHearsThePlanThenTheRecordAndEnds) {
  Actions actions = Await(7, 0, 2);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::get<AwaitEvent>(actions[0]).event->message.has_planned());
  EXPECT_FALSE(std::get<AwaitEvent>(actions[0]).last);
  EXPECT_THAT(results_.RanksThatAwait(2), ElementsAre(0));
  EXPECT_THAT(results_.RanksThatAwaitAny(), ElementsAre(0));
  EXPECT_THAT(results_.AnnounceRecord(job_, membership_), IsEmpty());
  DecideStep2();
  actions = results_.AnnounceRecord(job_, membership_);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::get<AwaitEvent>(actions[0]).event->message.has_decided());
  EXPECT_TRUE(std::get<AwaitEvent>(actions[0]).last);
  EXPECT_THAT(results_.RanksThatAwait(2), IsEmpty());
}

TEST_F(StepResultsTest, ACancelledCallHearsNothingMore) {
  Await(7, 0, 2);
  results_.Cancel(7);
  EXPECT_THAT(results_.AnnouncePlan(plan_), IsEmpty());
  DecideStep2();
  EXPECT_THAT(results_.AnnounceRecord(job_, membership_), IsEmpty());
}

TEST_F(StepResultsTest, ALaterStreamOfAWorkerReplacesTheFirst) {
  Await(7, 0, 2);
  Await(8, 1, 2);
  const Actions actions = Await(9, 0, 2);
  ASSERT_EQ(actions.size(), 2u);
  EXPECT_EQ(std::get<AwaitFailed>(actions[0]).call, 7u);
  EXPECT_EQ(FailureOf(actions[0]).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(std::get<AwaitEvent>(actions[1]).call, 9u);
  EXPECT_THAT(results_.RanksThatAwait(2), ElementsAre(0, 1));
}

TEST_F(StepResultsTest, AWorkerThatIsNotInThePlanIsNotToldOfIt) {
  Await(7, 0, 2);
  Await(8, 1, 2);
  plan_.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(99);
  const Actions actions = results_.AnnouncePlan(plan_);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<AwaitEvent>(actions[0]).call, 7u);
}

TEST_F(StepResultsTest, EndsTheStreamsOfRanksThatTheJobNoLongerHas) {
  Await(7, 0, 2);
  Await(8, 1, 2);
  membership_.Resize(1);
  const Actions actions = results_.FailDismissed(membership_);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<AwaitFailed>(actions[0]).call, 8u);
}

TEST_F(StepResultsTest, ReadsTheRecordOfTheStepBeforeTheChangesOfTheJob) {
  const v1::StepRecord step = StateAfterStep(1).applied_record();
  const uint64_t position = step.plan().position();
  job_.record = DecidedRecord(ChangeAt(position + 2));
  job_.position = position + 2;
  StepResults fresh;
  fresh.Find(job_);
  EXPECT_EQ(fresh.wanted_position(), position + 1);
  EXPECT_EQ(fresh.AnswerBegin(0, 1, job_, membership_).status().message(),
            "the record of step 1 is being read");
  EXPECT_THAT(fresh.OnRead(ChangeAt(position + 1)), IsEmpty());
  EXPECT_EQ(fresh.wanted_position(), position);
  EXPECT_THAT(fresh.OnRead(step), IsEmpty());
  EXPECT_EQ(fresh.wanted_position(), 0u);
  EXPECT_TRUE(fresh.AnswerBegin(0, 1, job_, membership_)->has_record());
  // The results that know the step already need no reading.
  results_.Find(job_);
  EXPECT_EQ(results_.wanted_position(), 0u);
}

TEST_F(StepResultsTest, ARecordThatIsNotKeptEndsTheStreamsThatWaitForIt) {
  job_.record = DecidedRecord(ChangeAt(job_.position + 1));
  job_.position += 1;
  results_.Forget();
  results_.Find(job_);
  EXPECT_THAT(Await(7, 0, 1), IsEmpty());
  const Actions actions = results_.OnRead(ChangeAt(job_.position + 9));
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(FailureOf(actions[0]).message(), "the record of the newest step is not kept any more");
  EXPECT_EQ(results_.AnswerBegin(0, 1, job_, membership_).status().message(),
            "step 1 begun, the newest applied step is 1");
}

}  // namespace
}  // namespace kaon::coordinator
