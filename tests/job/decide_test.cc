#include "job/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/job/decide_fixture.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::job {
namespace {

using coordinator::AddParameter;
using coordinator::TestJob;

using ::testing::HasSubstr;

// A job of many parameters of both routes, whose sums of squares are all over the range.
v1::JobDefinition WideJob() {
  v1::JobDefinition job = TestJob();
  for (int i = 0; i < 40; ++i) AddParameter(job, "more" + std::to_string(i), {4, 4});
  for (int i = 0; i < 40; ++i) AddParameter(job, "bias" + std::to_string(i), {4});
  return job;
}

std::vector<double> RandomSums(size_t count) {
  std::mt19937_64 random(3);
  std::vector<double> sums;
  for (size_t i = 0; i < count; ++i)
    sums.push_back(std::exp2(static_cast<int>(random() % 40) - 20) / 3);
  return sums;
}

TEST(DecideTest, DecisionIsBitEqualForAnyNumberOfShards) {
  const std::vector<double> sums = RandomSums(WideJob().parameters_size());
  const v1::RegisterBody one = Register(WideJob(), 1);
  const std::string expected =
      Decide(one, TrainPlan(), Votes(one, sums), nullptr).SerializeAsString();
  for (int num_shards : {2, 3, 7}) {
    const v1::RegisterBody job = Register(WideJob(), num_shards);
    EXPECT_EQ(Decide(job, TrainPlan(), Votes(job, sums), nullptr).SerializeAsString(), expected)
        << num_shards;
  }
}

TEST(DecideTest, ClipsByTheLiveNormAndLeavesScaleInvariantGroupsAlone) {
  const v1::RegisterBody job = Register(TestJob(), 2);
  // Muon: 400 + 500; AdamW: 9 + 16.
  const v1::StepDecision decision =
      Decide(job, TrainPlan(), Votes(job, {400, 9, 500, 16, 0}), nullptr);
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(decision.grad_norm(), std::sqrt(925.0));  // The norm includes exempt groups ([C3]).
  EXPECT_EQ(decision.live_norm(), 5);  // The scope `live` leaves out exempt groups ([C8]).
  ASSERT_EQ(decision.norms_size(), 2);
  EXPECT_TRUE(decision.norms(0).exempt());
  EXPECT_EQ(decision.norms(0).norm(), 30);
  EXPECT_EQ(decision.norms(0).clip_factor(), 1);  // Exempt groups are not clipped ([C7]).
  EXPECT_EQ(decision.norms(1).norm(), 5);
  // The norm exceeds the limit of 1 ([C5]).
  EXPECT_EQ(decision.norms(1).clip_factor(), 1.0 / (5 + 1e-6));
}

TEST(DecideTest, NormWithinTheLimitClipsNothing) {
  const v1::RegisterBody job = Register(TestJob(), 2);
  const v1::StepDecision decision =
      Decide(job, TrainPlan(), Votes(job, {400, 0.25, 500, 0.25, 0}), nullptr);
  EXPECT_EQ(decision.norms(1).clip_factor(), 1);
}

TEST(DecideTest, ClipsMuonToWhenThePolicySaysSo) {
  v1::JobDefinition definition = TestJob();
  definition.mutable_groups(0)->set_clip_policy(v1::CLIP_POLICY_CLIP);
  const v1::RegisterBody job = Register(definition, 1);
  const v1::StepDecision decision = Decide(job, TrainPlan(), Votes(job, {16, 0, 9, 0, 0}), nullptr);
  EXPECT_FALSE(decision.norms(0).exempt());
  EXPECT_EQ(decision.norms(0).clip_factor(), 1.0 / (5 + 1e-6));
}

TEST(DecideTest, MuonOnlyJobReadsNoNormForClipping) {
  v1::JobDefinition definition = TestJob();
  definition.clear_parameters();
  AddParameter(definition, "w", {4, 4});
  const v1::RegisterBody job = Register(definition, 1);
  const v1::StepDecision decision = Decide(job, TrainPlan(), Votes(job, {1e12}), nullptr);
  EXPECT_EQ(decision.live_norm(), 0);  // A job without live groups reads no norm ([T5]).
  EXPECT_EQ(decision.grad_norm(), 1e6);
  for (const v1::GroupNorm& norm : decision.norms()) EXPECT_EQ(norm.clip_factor(), 1);
}

TEST(DecideTest, GroupWithoutGradientsHasNormZeroAndFactorOne) {
  const v1::RegisterBody job = Register(TestJob(), 1);
  std::vector<v1::Prepared> votes = Votes(job, {1, 2, 3, 4, 0});
  SumsOf(votes, 1).set_missing(true);
  SumsOf(votes, 3).set_missing(true);
  const v1::StepDecision decision = Decide(job, TrainPlan(), votes, nullptr);
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(decision.norms(1).norm(), 0);  // An empty group has norm zero ([C4]).
  EXPECT_EQ(decision.norms(1).clip_factor(), 1);
}

TEST(DecideTest, NonFiniteGradientSkipsNamingParameterAndRank) {
  const v1::RegisterBody job = Register(TestJob(), 3);
  std::vector<v1::Prepared> votes = Votes(job, {1, 2, 3, 4, 0});
  for (const auto& [id, rank] : {std::pair(3, 0), std::pair(2, 1)}) {
    SumsOf(votes, id).set_num_non_finite(1);
    v1::Prepared& vote = votes[job.placement().parameters(id).shard()];
    // A shard names its first only.
    if (vote.has_first_non_finite() && vote.first_non_finite().parameter_id() < id) continue;
    vote.mutable_first_non_finite()->set_parameter_id(id);
    vote.mutable_first_non_finite()->set_rank(rank);
  }
  const v1::StepDecision decision = Decide(job, TrainPlan(), votes, nullptr);
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_SKIP);
  EXPECT_EQ(decision.reason(), "non-finite gradient of parameter layer1.w from rank 1");
  EXPECT_EQ(decision.norms_size(), 0);
  EXPECT_EQ(decision.next_loss_scale(), 8);
}

TEST(DecideTest, SumThatOverflowedSkips) {
  const v1::RegisterBody job = Register(TestJob(), 1);
  const double infinity = std::numeric_limits<double>::infinity();
  const v1::StepDecision decision =
      Decide(job, TrainPlan(), Votes(job, {1, infinity, 3, 4, 0}), nullptr);
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_SKIP);
  EXPECT_EQ(decision.reason(), "non-finite gradient of parameter layer0.b in the sum over ranks");
}

TEST(DecideTest, LossIsTheTokenWeightedMeanOfThoseThatReported) {
  const v1::RegisterBody job = Register(TestJob(), 2);
  std::vector<v1::Prepared> votes = Votes(job, {1, 2, 3, 4, 0});
  EXPECT_FALSE(Decide(job, TrainPlan(), votes, nullptr).has_loss());
  for (v1::Prepared& vote : votes) {
    v1::WorkerLoss& loss = *vote.add_losses();
    loss.set_rank(1);
    loss.set_loss(2.5);
  }
  EXPECT_EQ(Decide(job, TrainPlan(), votes, nullptr).loss(), 2.5);
  v1::WorkerLoss& loss = *votes[0].add_losses();
  loss.set_rank(0);
  loss.set_loss(0.5);
  EXPECT_EQ(Decide(job, TrainPlan(), votes, nullptr).loss(), (1 * 0.5 + 3 * 2.5) / 4);
}

v1::StepPlan LoadPlan() {
  v1::StepPlan plan;
  plan.mutable_step()->set_kind(v1::STEP_KIND_LOAD_WEIGHTS);
  plan.mutable_step()->set_loss_scale(1);
  return plan;
}

TEST(DecideTest, InitialWeightsApplyUnlessNonFiniteOrMissing) {
  const v1::RegisterBody job = Register(TestJob(), 2);
  std::vector<v1::Prepared> votes = Votes(job, {1, 2, 3, 4, 0});
  v1::StepRecord previous;
  previous.mutable_decision()->set_next_loss_scale(4);
  const v1::StepDecision applied = Decide(job, LoadPlan(), votes, &previous);
  EXPECT_EQ(applied.outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(applied.next_loss_scale(), 4);

  SumsOf(votes, 2).set_missing(true);
  EXPECT_EQ(Decide(job, LoadPlan(), votes, &previous).outcome(), v1::OUTCOME_SKIP);
  EXPECT_THAT(Decide(job, LoadPlan(), votes, &previous).reason(), HasSubstr("layer1.w"));

  SumsOf(votes, 1).set_num_non_finite(2);
  EXPECT_THAT(Decide(job, LoadPlan(), votes, &previous).reason(), HasSubstr("layer0.b"));
}

TEST(DecideTest, RegistrationAppliesWithLossScaleOne) {
  v1::StepPlan plan;
  *plan.mutable_registration() = Register(TestJob(), 2);
  const v1::StepDecision decision =
      Decide(plan.registration(), plan, std::vector<v1::Prepared>(2), nullptr);
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(decision.next_loss_scale(), 1);
}

// ADR 0048: the next job decides as the first one of a cluster.
TEST(DecideTest, ADeletionPassesNothingOn) {
  const v1::RegisterBody job = Register(TestJob(), 2);
  v1::StepRecord previous;
  previous.mutable_decision()->set_next_loss_scale(128);
  previous.mutable_decision()->set_applied_updates(9);
  previous.mutable_decision()->set_clip_reductions_total(9);
  previous.mutable_decision()->mutable_loss_scaler()->set_growth_steps(3);
  v1::StepPlan deletion;
  deletion.mutable_job_deletion();
  v1::StepRecord deleted;
  *deleted.mutable_plan() = deletion;
  *deleted.mutable_decision() = Decide(job, deletion, std::vector<v1::Prepared>(2), &previous);
  EXPECT_EQ(deleted.decision().outcome(), v1::OUTCOME_APPLY);
  v1::StepPlan plan;
  *plan.mutable_registration() = job;
  EXPECT_EQ(Decide(job, plan, std::vector<v1::Prepared>(2), &deleted).SerializeAsString(),
            Decide(job, plan, std::vector<v1::Prepared>(2), nullptr).SerializeAsString());
}

// P4: the digest of the whole job, for any placement and every kind of entry; mod 2^64.
TEST(DecideTest, AddsUpTheShardsStateDigests) {
  const v1::RegisterBody job = Register(TestJob(), 3);
  std::vector<v1::Prepared> votes = Votes(job, RandomSums(TestJob().parameters_size()));
  votes[0].set_state_digest(5);
  votes[1].set_state_digest(~uint64_t{0});
  votes[2].set_state_digest(10);
  EXPECT_EQ(Decide(job, TrainPlan(), votes, nullptr).state_digest(), 14u);
  EXPECT_EQ(Decide(job, LoadPlan(), votes, nullptr).state_digest(), 14u);
  v1::StepPlan change;
  change.mutable_group_change();
  EXPECT_EQ(Decide(job, change, votes, nullptr).state_digest(), 14u);
  votes[0].mutable_sums(0)->set_num_non_finite(1);
  const v1::StepDecision skipped = Decide(job, TrainPlan(), votes, nullptr);
  EXPECT_EQ(skipped.outcome(), v1::OUTCOME_SKIP);
  EXPECT_EQ(skipped.state_digest(), 14u);
}

}  // namespace
}  // namespace kaon::job
