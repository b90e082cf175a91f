#include "server/shard/agreement/plan_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/server/shard/agreement/plans.h"

namespace kaon::shard {
namespace {

class PlanCheckTest : public testing::Test {
 protected:
  absl::Status CheckTrain(const std::function<void(v1::StepBody*)>& spoil) {
    v1::StepPlan plan = TrainPlan(5, 1, 1);
    spoil(plan.mutable_step());
    return CheckPlanBody({&registration_, 4, true}, plan);
  }
  void ExpectInvalid(absl::string_view named, const std::function<void(v1::StepBody*)>& spoil) {
    const absl::Status status = CheckTrain(spoil);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << named;
    EXPECT_NE(status.message().find(named), absl::string_view::npos) << status;
  }

  const v1::RegisterBody registration_ = MakeRegistration();
};

TEST_F(PlanCheckTest, AcceptsTheNextEntryOfEachKind) {
  EXPECT_TRUE(CheckPlanBody({}, RegistrationPlan(1, 1)).ok());
  EXPECT_TRUE(CheckPlanBody({&registration_, 0, false}, LoadPlan(1, 1)).ok());
  EXPECT_TRUE(CheckTrain([](v1::StepBody*) {}).ok());
}

TEST_F(PlanCheckTest, RefusesEntriesOutOfOrder) {
  const auto stale = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(CheckPlanBody({}, LoadPlan(1, 1)).code(), stale);
  EXPECT_EQ(CheckPlanBody({&registration_, 0, false}, RegistrationPlan(1, 1)).code(), stale);
  EXPECT_EQ(CheckPlanBody({&registration_, 0, false}, TrainPlan(1, 1, 1)).code(), stale);
  EXPECT_EQ(CheckPlanBody({&registration_, 0, true}, LoadPlan(1, 1)).code(), stale);
  EXPECT_EQ(CheckPlanBody({&registration_, 4, true}, TrainPlan(6, 1, 1)).message(),
            "step 6 planned, expecting 5");
}

TEST_F(PlanCheckTest, RefusesAPlanWithoutBody) {
  v1::StepPlan plan;
  EXPECT_EQ(CheckPlanBody({}, plan).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PlanCheckTest, RefusesOtherJobs) {
  v1::StepPlan plan = TrainPlan(5, 1, 1);
  plan.set_job("bert");
  EXPECT_EQ(CheckPlanBody({&registration_, 4, true}, plan).message(),
            "plan is of job 'bert', expecting 'gpt2'");
}

TEST_F(PlanCheckTest, AcceptsAChangeOfGroupsThatKeepsTheirState) {
  const JobProgress progress = {&registration_, 4, true};
  EXPECT_TRUE(CheckPlanBody(progress, GroupChangePlan(7, 0.5, 1, 1)).ok());
  EXPECT_EQ(CheckPlanBody({}, GroupChangePlan(7, 0.5, 1, 1)).message(),
            "change of groups of job 'gpt2' planned before its registration");
  v1::StepPlan plan = GroupChangePlan(7, 0.5, 1, 1);
  plan.set_job("bert");
  EXPECT_EQ(CheckPlanBody(progress, plan).message(), "plan is of job 'bert', expecting 'gpt2'");
  plan = GroupChangePlan(7, 0.5, 1, 1);
  plan.mutable_group_change()->mutable_settings(0)->set_position(6);
  EXPECT_EQ(CheckPlanBody(progress, plan).message(),
            "setting lr of group 'scalars' is of position 6, expecting 7");
  plan = GroupChangePlan(7, 0.5, 1, 1);
  plan.mutable_group_change()->mutable_groups(0)->set_rule(v1::RULE_ADAMW);
  EXPECT_EQ(CheckPlanBody(progress, plan).message(),
            "group matrices: rule is adamw, must stay muon while the job runs");
  plan = GroupChangePlan(7, 0.5, 1, 1);
  plan.mutable_group_change()->mutable_groups(1)->set_lr(-1);
  EXPECT_EQ(CheckPlanBody(progress, plan).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PlanCheckTest, NamesTheMalformedMember) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ExpectInvalid("plan has 1 members, expecting 2",
                [](v1::StepBody* step) { step->mutable_members()->RemoveLast(); });
  ExpectInvalid("member 1 of the plan has rank 0",
                [](v1::StepBody* step) { step->mutable_members(1)->set_rank(0); });
  ExpectInvalid("token weight of rank 1 is 0",
                [](v1::StepBody* step) { step->mutable_members(1)->set_token_weight(0); });
  ExpectInvalid("token weight of rank 1 is 1e-300",
                [](v1::StepBody* step) { step->mutable_members(1)->set_token_weight(1e-300); });
  ExpectInvalid("token weight of rank 1 is nan",
                [&](v1::StepBody* step) { step->mutable_members(1)->set_token_weight(nan); });
  ExpectInvalid("micro-batches of rank 0 are 0",
                [](v1::StepBody* step) { step->mutable_members(0)->set_micro_batches(0); });
  ExpectInvalid("micro-batches of rank 0 are 1025",
                [](v1::StepBody* step) { step->mutable_members(0)->set_micro_batches(1025); });
}

// A job that shrinks continues with the remaining workers (T21).
TEST_F(PlanCheckTest, AJobThatShrinksGoesOnWithThoseThatAreLeft) {
  v1::RegisterBody shrinks = registration_;
  shrinks.mutable_definition()->set_worker_loss(v1::WORKER_LOSS_POLICY_SHRINK);
  shrinks.mutable_definition()->set_world_size(3);
  const JobProgress progress{&shrinks, 4, true};
  v1::StepPlan plan = TrainPlan(5, 1, 1);
  v1::StepBody& step = *plan.mutable_step();
  EXPECT_TRUE(CheckPlanBody(progress, plan).ok());
  step.mutable_members(1)->set_rank(2);
  EXPECT_TRUE(CheckPlanBody(progress, plan).ok());
  step.mutable_members(1)->set_rank(3);
  EXPECT_EQ(CheckPlanBody(progress, plan).message(),
            "member 1 of the plan has rank 3, expecting 1 .. 2");
  step.mutable_members(1)->set_rank(0);
  EXPECT_EQ(CheckPlanBody(progress, plan).message(),
            "member 1 of the plan has rank 0, expecting 1 .. 2");
  step.mutable_members()->RemoveLast();
  step.mutable_members(0)->set_rank(2);
  EXPECT_TRUE(CheckPlanBody(progress, plan).ok());
  step.clear_members();
  EXPECT_EQ(CheckPlanBody(progress, plan).message(), "plan has 0 members, expecting 1 .. 3");
  // Weights are never loaded by another one.
  plan = LoadPlan(1, 1);
  plan.mutable_step()->mutable_members(0)->set_rank(1);
  EXPECT_EQ(CheckPlanBody({&shrinks, 0, false}, plan).message(),
            "member 0 of the plan has rank 1, expecting 0");
}

TEST_F(PlanCheckTest, NamesTheMalformedRateAndScale) {
  ExpectInvalid("rates of 1 groups, expecting 2",
                [](v1::StepBody* step) { step->mutable_rates()->RemoveLast(); });
  ExpectInvalid("is of group 'other', expecting 'scalars'",
                [](v1::StepBody* step) { step->mutable_rates(1)->set_group("other"); });
  ExpectInvalid("learning rate of group 'matrices' is -1",
                [](v1::StepBody* step) { step->mutable_rates(0)->set_learning_rate(-1); });
  ExpectInvalid("learning rate of group 'matrices' is 1e+39",
                [](v1::StepBody* step) { step->mutable_rates(0)->set_learning_rate(1e39); });
  // The rate is a float, but its product with the factors of parameters is not.
  ExpectInvalid("learning rate 3e+38 * lr_multiplier 1",
                [](v1::StepBody* step) { step->mutable_rates(1)->set_learning_rate(3e38); });
  ExpectInvalid("loss scale is 0", [](v1::StepBody* step) { step->set_loss_scale(0); });
  ExpectInvalid("step kind is 9",
                [](v1::StepBody* step) { step->set_kind(static_cast<v1::StepKind>(9)); });
}

class DecisionCheckTest : public PlanCheckTest {
 protected:
  void ExpectRefused(absl::string_view named, const std::function<void(v1::StepDecision&)>& spoil) {
    v1::StepRecord record = Applying(TrainPlan(5, 1, 1));
    spoil(*record.mutable_decision());
    const absl::Status status = CheckDecision(&registration_, record);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << named;
    EXPECT_NE(status.message().find(named), absl::string_view::npos) << status;
  }
};

TEST_F(DecisionCheckTest, AcceptsWhatIsDecided) {
  EXPECT_TRUE(CheckDecision(&registration_, Applying(TrainPlan(5, 1, 1))).ok());
  // A step that is skipped has no norms, nor have other entries.
  EXPECT_TRUE(CheckDecision(&registration_, Skipping(TrainPlan(5, 1, 1))).ok());
  EXPECT_TRUE(CheckDecision(&registration_, Applying(LoadPlan(1, 1))).ok());
  EXPECT_TRUE(CheckDecision(nullptr, Applying(RegistrationPlan(1, 1))).ok());
}

TEST_F(DecisionCheckTest, NamesWhatIsMalformed) {
  ExpectRefused("outcome is 0", [](auto& decision) { decision.clear_outcome(); });
  ExpectRefused("next loss scale is 0", [](auto& decision) { decision.clear_next_loss_scale(); });
  ExpectRefused("next loss scale is 1e-50",
                [](auto& decision) { decision.set_next_loss_scale(1e-50); });
  ExpectRefused("next loss scale is 1e+50",
                [](auto& decision) { decision.set_next_loss_scale(1e50); });
}

// A decision must have a clip factor of every norm group ([C3]) and of every group ([C5]).
TEST_F(DecisionCheckTest, ExpectsAFactorOfEveryGroupAndNormGroup) {
  ExpectRefused("norms of 0 groups, expecting 2", [](auto& decision) { decision.clear_norms(); });
  ExpectRefused("is of group 'other', expecting 'matrices'",
                [](auto& decision) { decision.mutable_norms(0)->set_group("other"); });
  ExpectRefused("clip factor of group 'scalars' is 1.5",
                [](auto& decision) { decision.mutable_norms(1)->set_clip_factor(1.5); });
  ExpectRefused("norms of 0 norm groups, expecting 1",
                [](auto& decision) { decision.clear_norm_groups(); });
  ExpectRefused("is of norm group 'mtp', expecting 'main'",
                [](auto& decision) { decision.mutable_norm_groups(0)->set_norm_group("mtp"); });
  ExpectRefused("clip factor of norm group 'main' is 0",
                [](auto& decision) { decision.mutable_norm_groups(0)->set_clip_factor(0); });
  ExpectRefused("clip factor of norm group 'main' is nan",
                [](auto& decision) { decision.mutable_norm_groups(0)->set_clip_factor(NAN); });
}

}  // namespace
}  // namespace kaon::shard
