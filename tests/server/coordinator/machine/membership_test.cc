#include "server/coordinator/machine/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/ballot.h"

namespace kaon::coordinator {
namespace {

using ::testing::ElementsAre;

v1::Ballot BallotOf(uint64_t counter) {
  v1::Ballot ballot;
  ballot.set_counter(counter);
  return ballot;
}

class MembershipTest : public ::testing::Test {
 protected:
  MembershipTest() { members_.Reset(2); }

  absl::StatusOr<v1::Attempt> Join(uint32_t rank, uint64_t nonce, uint64_t ballot = 5,
                                   const v1::Attempt* previous = nullptr) {
    v1::JoinWorkerRequest request;
    request.set_rank(rank);
    request.set_process_nonce(nonce);
    if (previous != nullptr) *request.mutable_previous_attempt() = *previous;
    return members_.Join(request, BallotOf(ballot));
  }
  absl::Status Begin(uint32_t rank, const v1::Attempt& attempt, uint64_t nonce, uint64_t step,
                     const std::string& traceparent = "") {
    v1::BeginStepRequest request;
    request.set_traceparent(traceparent);
    request.set_rank(rank);
    *request.mutable_attempt() = attempt;
    request.set_process_nonce(nonce);
    request.set_step(step);
    request.set_token_weight(2);
    request.set_learning_rate_multiplier(0.5);
    const absl::Status checked = members_.CheckBegin(request);
    return checked.ok() ? members_.Begin(request) : checked;
  }

  Membership members_;
};

TEST_F(MembershipTest, AttemptsAreNumberedUnderTheBallotAndNeverRepeat) {
  EXPECT_EQ(Join(0, 1)->number(), 1);
  EXPECT_EQ(Join(1, 2)->number(), 2);
  EXPECT_EQ(Join(0, 3)->number(), 3);
  const auto next = Join(1, 4, 6);
  EXPECT_EQ(next->number(), 1);
  EXPECT_EQ(next->ballot().counter(), 6);
}

TEST_F(MembershipTest, NewestAttemptOfAnEarlierCoordinatorWins) {
  v1::Attempt older;
  *older.mutable_ballot() = BallotOf(3);
  older.set_number(1);
  v1::Attempt newer = older;
  newer.set_number(2);
  EXPECT_EQ(proto::Compare(*Join(0, 10, 5, &older), older), 0);
  EXPECT_EQ(proto::Compare(*Join(0, 20, 5, &newer), newer), 0);
  EXPECT_EQ(Join(0, 10, 5, &older).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(members_.CheckAttempt(0, older).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(members_.CheckAttempt(0, newer).ok());
}

TEST_F(MembershipTest, AttemptOfItsOwnBallotThatItDoesNotKnowIsNotKept) {
  v1::Attempt invented;
  *invented.mutable_ballot() = BallotOf(5);
  invented.set_number(77);
  EXPECT_EQ(Join(0, 10, 5, &invented).status().code(), absl::StatusCode::kAborted);
}

// A worker whose step ended with its timeline joins again with the attempt it had.
TEST_F(MembershipTest, InAnotherTimelineWhoHadARankIsAllottedAnotherAttempt) {
  const v1::Attempt before = *Join(0, 10);
  ASSERT_TRUE(Begin(0, before, 10, 7).ok());
  members_.BeginTimeline(2);
  EXPECT_EQ(members_.CheckAttempt(0, before).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(members_.MissingRanks(7), ElementsAre(0, 1));
  // It was somebody else's.
  EXPECT_EQ(Join(0, 20, 5, &before).status().code(), absl::StatusCode::kAborted);
  const v1::Attempt after = *Join(0, 10, 5, &before);
  EXPECT_GT(proto::Compare(after, before), 0);
  // Its answer was lost.
  EXPECT_EQ(proto::Compare(*Join(0, 10, 5, &before), after), 0);
  // Two timelines later, as nobody came in the first of them.
  members_.BeginTimeline(2);
  members_.BeginTimeline(2);
  EXPECT_EQ(Join(0, 10, 5, &before).status().code(), absl::StatusCode::kAborted);
  EXPECT_GT(proto::Compare(*Join(0, 10, 5, &after), after), 0);
}

TEST_F(MembershipTest, StepIsBegunByAllRanksAndTheWeightsByRankZero) {
  const v1::Attempt zero = *Join(0, 1);
  const v1::Attempt one = *Join(1, 2);
  EXPECT_THAT(members_.MissingRanks(7), ElementsAre(0, 1));
  ASSERT_TRUE(Begin(0, zero, 1, 7).ok());
  EXPECT_THAT(members_.MissingRanks(7), ElementsAre(1));
  EXPECT_FALSE(members_.AllBegun(7));
  ASSERT_TRUE(Begin(1, one, 2, 7).ok());
  EXPECT_TRUE(members_.AllBegun(7));
  EXPECT_FALSE(members_.AllBegun(8));
  EXPECT_EQ(members_.AgreeOnMultipliers(7).multipliers.step, 0.5);
  const std::vector<v1::Member> members = members_.MembersOf(7);
  ASSERT_EQ(members.size(), 2);
  EXPECT_EQ(members[1].process_nonce(), 2);
  EXPECT_EQ(members[1].token_weight(), 2);
  EXPECT_EQ(members[1].micro_batches(), 1);
  EXPECT_THAT(members_.MissingRanks(0), ElementsAre(0));
}

TEST_F(MembershipTest, NobodyIsAbsentWhileNoneThatIsThereHasBegun) {
  members_.Resize(4);
  const v1::Attempt one = *Join(1, 2);
  EXPECT_THAT(members_.AbsentRanks(7, {1}), ElementsAre());
  ASSERT_TRUE(Begin(1, one, 2, 7).ok());
  EXPECT_THAT(members_.AbsentRanks(7, {}), ElementsAre());
  EXPECT_THAT(members_.AbsentRanks(7, {1}), ElementsAre(0, 2, 3));
  members_.Lose(2, "");
  EXPECT_THAT(members_.AbsentRanks(7, {1}), ElementsAre(0, 3));
}

TEST_F(MembershipTest, MembersOfAPlanAreThoseThatHaveBegunWithTheSameAttempt) {
  ASSERT_TRUE(Begin(0, *Join(0, 1), 1, 7).ok());
  ASSERT_TRUE(Begin(1, *Join(1, 2), 2, 7).ok());
  v1::StepBody planned;
  for (v1::Member& member : members_.MembersOf(7)) *planned.add_members() = member;
  EXPECT_TRUE(members_.AreMembers(planned.members(), 7));
  members_.Lose(1, "");
  EXPECT_FALSE(members_.AreMembers(planned.members(), 7));
  members_.Regain(1);
  ASSERT_TRUE(Begin(1, *Join(1, 3), 3, 7).ok());
  EXPECT_FALSE(members_.AreMembers(planned.members(), 7));
}

// T21: a worker is lost.
TEST_F(MembershipTest, StepsGoOnWithoutALostRankUntilItJoinsOrIsThereAgain) {
  EXPECT_FALSE(members_.AllBegun(7));
  ASSERT_TRUE(Begin(0, *Join(0, 1), 1, 7).ok());
  members_.Lose(1, "");
  EXPECT_THAT(members_.MissingRanks(7), ElementsAre());
  EXPECT_TRUE(members_.AllBegun(7));
  EXPECT_EQ(members_.MembersOf(7).size(), 1u);
  const v1::Attempt one = *Join(1, 2);
  EXPECT_THAT(members_.MissingRanks(7), ElementsAre(1));
  ASSERT_TRUE(Begin(1, one, 2, 7).ok());
  EXPECT_EQ(members_.MembersOf(7).size(), 2u);
  // What it has begun is not forgotten, and counts for nothing while it is lost.
  members_.Lose(0, "");
  EXPECT_EQ(members_.MembersOf(7)[0].rank(), 1u);
  EXPECT_EQ(members_.AgreeOnMultipliers(7).multipliers.step, 0.5);
  members_.Regain(0);
  EXPECT_EQ(members_.MembersOf(7).size(), 2u);
  // Without anybody there is no step; the weights are rank 0's, lost or not.
  members_.Lose(0, "");
  members_.Lose(1, "");
  EXPECT_FALSE(members_.AllBegun(7));
  EXPECT_THAT(members_.MissingRanks(0), ElementsAre(0));
}

TEST_F(MembershipTest, TraceOfAStepIsThatOfTheLowestMemberThatNamesOne) {
  members_.Reset(3);
  const auto named = [](char digit) {
    return absl::StrCat("00-", std::string(32, digit), "-b7ad6b7169203331-01");
  };
  ASSERT_TRUE(Begin(2, *Join(2, 3), 3, 7, named('2')).ok());
  EXPECT_EQ(members_.TraceOf(7), std::string(16, '\x22'));
  ASSERT_TRUE(Begin(0, *Join(0, 1), 1, 7, named('0')).ok());
  EXPECT_EQ(members_.TraceOf(7), std::string(16, '\x22')) << "0 is no id";
  const v1::Attempt one = *Join(1, 2);
  ASSERT_TRUE(Begin(1, one, 2, 7, named('1')).ok());
  EXPECT_EQ(members_.TraceOf(7), std::string(16, '\x11'));
  // A repeated share may name another one.
  ASSERT_TRUE(Begin(1, one, 2, 7, named('3')).ok());
  EXPECT_EQ(members_.TraceOf(7), std::string(16, '\x11'));
  members_.Lose(1, "");
  EXPECT_EQ(members_.TraceOf(7), std::string(16, '\x22'));
  EXPECT_EQ(members_.TraceOf(8), "");
}

TEST_F(MembershipTest, RankThatJoinsAnewHasBegunNothing) {
  ASSERT_TRUE(Begin(0, *Join(0, 1), 1, 7).ok());
  ASSERT_TRUE(Join(0, 9).ok());
  EXPECT_THAT(members_.MissingRanks(7), ElementsAre(0, 1));
}

TEST_F(MembershipTest, BegunStepsAreForgottenButForOne) {
  ASSERT_TRUE(Begin(0, *Join(0, 1), 1, 7).ok());
  ASSERT_TRUE(Begin(1, *Join(1, 2), 2, 8).ok());
  members_.ForgetBegunExcept(8);
  EXPECT_EQ(members_.Snapshot()[0].begun_step, std::nullopt);
  EXPECT_EQ(members_.Snapshot()[1].begun_step, 8);
}

}  // namespace
}  // namespace kaon::coordinator
