// Clipping of a step: which groups, by which norm, and by how much ([C1]-[C8] of numerics.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/job/decide_fixture.h"

namespace kaon::job {
namespace {

using coordinator::AddParameter;
using coordinator::TestJob;

// Parameters: layer0.w and layer1.w by Muon (exempt), layer0.b and layer1.b by AdamW (live).
constexpr int kMuon = 0;
constexpr int kAdamW = 1;

v1::JobDefinition JobWithSeparateGroup() {
  v1::JobDefinition job = TestJob();
  v1::NormGroup& mtp = *job.add_norm_groups();
  mtp.set_name("mtp");
  mtp.set_max_grad_norm(10);
  job.mutable_parameters(3)->set_norm_group("mtp");
  return job;
}

// [C1], edge 43: entries of 1e20 are finite in fp32, and so is their norm.
TEST(DecideClipTest, SumsBeyondFp32HaveAFiniteNorm) {
  const v1::StepDecision decision = DecideOn(TestJob(), {0, 4e40, 0, 0, 0});
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_APPLY);
  EXPECT_DOUBLE_EQ(decision.grad_norm(), 2e20);
  EXPECT_DOUBLE_EQ(decision.norms(kAdamW).clip_factor(), 5e-21);
}

// The norm is that of all shards, added in one order, whatever their number ([C1]). This covers
// edges 33 and 43.
TEST(DecideClipTest, TheSumIsTakenInParameterOrder) {
  for (const int num_shards : {1, 2, 3, 7}) {
    const v1::RegisterBody job = Register(TestJob(), num_shards);
    const v1::StepDecision decision =
        Decide(job, TrainPlan(), Votes(job, {1, 1e16, 1, 1, 0}), nullptr);
    EXPECT_EQ(decision.grad_norm(), std::sqrt(((1.0 + 1e16) + 1.0) + 1.0)) << num_shards;
  }
}

// [C2], edge 33: a copy is in no norm, and scaled like the rest; every other parameter is counted
// once.
TEST(DecideClipTest, ACopyIsNotCounted) {
  v1::RegisterBody job = Register(TestJob(), 2);
  job.mutable_placement()->mutable_parameters(3)->set_counted(false);
  const v1::StepDecision decision =
      Decide(job, TrainPlan(), Votes(job, {0, 9, 0, 1e8, 0}), nullptr);
  EXPECT_EQ(decision.grad_norm(), 3);
  EXPECT_EQ(decision.live_norm(), 3);
  EXPECT_EQ(decision.norms(kAdamW).norm(), 3);
  EXPECT_EQ(decision.norm_groups(0).clip_factor(), 1 / (3 + 1e-6));
}

// Each vote's rows are those of its own parameters ([C2]). A row that arrives twice counts once
// (edge 33).
TEST(DecideClipTest, AParameterIsCountedOnce) {
  const v1::RegisterBody job = Register(TestJob(), 2);
  std::vector<v1::Prepared> votes = Votes(job, {0, 9, 0, 16, 0});
  *votes[0].add_sums() = SumsOf(votes, 3);
  EXPECT_EQ(Decide(job, TrainPlan(), votes, nullptr).grad_norm(), 5);
}

// [C3], edge 9: reported and clipped by itself, and out of main.
TEST(DecideClipTest, ASeparateNormGroupHasItsOwnNormAndLimit) {
  const v1::StepDecision decision = DecideOn(JobWithSeparateGroup(), {16, 9, 0, 1e12, 0});
  EXPECT_EQ(decision.grad_norm(), 5);
  EXPECT_EQ(decision.live_norm(), 3);
  ASSERT_EQ(decision.norm_groups_size(), 2);
  EXPECT_EQ(decision.norm_groups(0).norm_group(), "main");
  EXPECT_EQ(decision.norm_groups(0).norm(), 5);
  EXPECT_EQ(decision.norm_groups(0).live_norm(), 3);
  EXPECT_EQ(decision.norm_groups(0).clip_factor(), 1 / (3 + 1e-6));
  EXPECT_EQ(decision.norm_groups(1).norm_group(), "mtp");
  EXPECT_EQ(decision.norm_groups(1).norm(), 1e6);
  EXPECT_EQ(decision.norm_groups(1).clip_factor(), 10 / (1e6 + 1e-6));
  // The group's own norm group is main.
  EXPECT_EQ(decision.norms(kAdamW).clip_factor(), 1 / (3 + 1e-6));
}

// A norm group without a limit has the job's; 0 switches its clipping off ([C3]).
TEST(DecideClipTest, ANormGroupWithoutALimitHasTheJobs) {
  v1::JobDefinition job = JobWithSeparateGroup();
  job.mutable_norm_groups(0)->clear_max_grad_norm();
  EXPECT_EQ(DecideOn(job, {0, 0, 0, 16, 0}).norm_groups(1).clip_factor(), 1 / (4 + 1e-6));
  job.mutable_norm_groups(0)->set_max_grad_norm(0);
  EXPECT_EQ(DecideOn(job, {0, 0, 0, 16, 0}).norm_groups(1).clip_factor(), 1);
}

// [C4]: no gradients, or no parameters, is no error.
TEST(DecideClipTest, AnEmptyNormGroupHasNormZeroAndFactorOne) {
  v1::JobDefinition job = JobWithSeparateGroup();
  job.mutable_parameters(3)->clear_norm_group();
  const v1::StepDecision decision = DecideOn(job, {1, 1, 1, 1, 0});
  EXPECT_TRUE(decision.norm_groups(1).has_norm());
  EXPECT_EQ(decision.norm_groups(1).norm(), 0);
  EXPECT_EQ(decision.norm_groups(1).clip_factor(), 1);
}

// Edge 42: the coefficient is exactly the limit over norm + 1e-6 ([C5]).
TEST(DecideClipTest, TheCoefficientIsExact) {
  const v1::StepDecision at = DecideOn(TestJob(), {0, 1, 0, 0, 0});
  EXPECT_EQ(at.norms(kAdamW).clip_factor(), 1.0 / (1.0 + 1e-6));
  EXPECT_EQ(DecideOn(TestJob(), {0, 0.25, 0, 0, 0}).norms(kAdamW).clip_factor(), 1);
  v1::JobDefinition off = TestJob();
  off.set_max_grad_norm(0);
  EXPECT_EQ(DecideOn(off, {0, 1e12, 0, 0, 0}).norms(kAdamW).clip_factor(), 1);
  off.clear_max_grad_norm();
  EXPECT_EQ(DecideOn(off, {0, 1e12, 0, 0, 0}).norms(kAdamW).clip_factor(), 1);
}

// [C6], edge 3: a benign huge norm does not push Adam's gradients under its eps.
TEST(DecideClipTest, TheFloorHoldsTheFactorUp) {
  v1::JobDefinition job = TestJob();
  job.set_clip_scope(v1::CLIP_SCOPE_ALL);
  const std::vector<double> spike = {2.5e15, 1e-6, 0, 0, 0};  // Norm 5e7.
  EXPECT_NEAR(DecideOn(job, spike).norms(kAdamW).clip_factor(), 2e-8, 1e-14);
  job.set_clip_floor(0.01);
  EXPECT_EQ(DecideOn(job, spike).norms(kAdamW).clip_factor(), 0.01);
  // It raises factors, and lowers none.
  EXPECT_EQ(DecideOn(job, {0, 4, 0, 0, 0}).norms(kAdamW).clip_factor(), 1 / (2 + 1e-6));
  EXPECT_EQ(DecideOn(job, {0, 0.25, 0, 0, 0}).norms(kAdamW).clip_factor(), 1);
}

// [C6]: only with a finite norm; the step is skipped otherwise.
TEST(DecideClipTest, TheFloorDoesNotSaveANonFiniteNorm) {
  v1::JobDefinition job = TestJob();
  job.set_clip_floor(0.5);
  const v1::StepDecision decision = DecideOn(job, {0, INFINITY, 0, 0, 0});
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_SKIP);
  EXPECT_EQ(decision.norm_groups_size(), 0);
}

// [C7], edge 3: an exempt group is never scaled, in any norm group; its norm is reported.
TEST(DecideClipTest, ExemptGroupsAreUntouched) {
  for (const double norm : {5e7, 2e11}) {
    const v1::StepDecision decision = DecideOn(TestJob(), {norm * norm, 1e-6, 0, 0, 0});
    EXPECT_TRUE(decision.norms(kMuon).exempt());
    EXPECT_EQ(decision.norms(kMuon).clip_factor(), 1);
    EXPECT_DOUBLE_EQ(decision.norms(kMuon).norm(), norm);
    // [C8] live: it does not crush the others either.
    EXPECT_EQ(decision.norms(kAdamW).clip_factor(), 1);
  }
}

// [C7], edge 4: the policy overrides the rule's own, both ways.
TEST(DecideClipTest, ThePolicyOfAGroupOverridesItsRule) {
  v1::JobDefinition job = TestJob();
  job.mutable_groups(kMuon)->set_clip_policy(v1::CLIP_POLICY_CLIP);
  job.mutable_groups(kAdamW)->set_clip_policy(v1::CLIP_POLICY_EXEMPT);
  const v1::StepDecision decision = DecideOn(job, {16, 1e8, 9, 0, 0});
  EXPECT_FALSE(decision.norms(kMuon).exempt());
  EXPECT_EQ(decision.norms(kMuon).clip_factor(), 1 / (5 + 1e-6));
  EXPECT_TRUE(decision.norms(kAdamW).exempt());
  EXPECT_EQ(decision.norms(kAdamW).clip_factor(), 1);
}

// Edge 4: exemption survives that a job is resolved again, passes through a log, and has its groups
// changed. One job has other rules too; one has Muon alone.
TEST(DecideClipTest, ExemptionSurvivesMakingTheJobAnew) {
  v1::JobDefinition muon_only = TestJob();
  muon_only.clear_parameters();
  AddParameter(muon_only, "w", {4, 4});
  for (const v1::JobDefinition& job : {TestJob(), muon_only}) {
    const bool alone = job.parameters_size() == 1;
    v1::RegisterBody again = Register(Register(job, 2).definition(), 2);
    again.mutable_definition()->mutable_groups(kMuon)->mutable_muon()->set_momentum(0.5);
    again.mutable_definition()->mutable_groups(kAdamW)->set_lr(0.5);
    v1::RegisterBody read;
    ASSERT_TRUE(read.ParseFromString(again.SerializeAsString()));
    const v1::StepDecision decision =
        Decide(read, TrainPlan(), Votes(read, {1e24, 9, 0, 16, 0}), nullptr);
    EXPECT_TRUE(decision.norms(kMuon).exempt()) << alone;
    EXPECT_EQ(decision.norms(kMuon).clip_factor(), 1) << alone;
    EXPECT_FALSE(decision.norms(kAdamW).exempt()) << alone;
    EXPECT_EQ(decision.norms(kAdamW).clip_factor(), alone ? 1 : 1 / (5 + 1e-6));
  }
}

// Edge 5: in one chain with exempt Muon every other rule still clips, by the norm of all of them.
TEST(DecideClipTest, EveryRuleButMuonClipsInOneChain) {
  v1::JobDefinition job = TestJob();
  for (const v1::Rule rule : {v1::RULE_SGD, v1::RULE_LION}) {
    v1::ParameterGroup& group = *job.add_groups();
    group.set_name(rule == v1::RULE_SGD ? "sgd" : "lion");
    group.set_rule(rule);
    group.set_lr(0.001);
  }
  job.mutable_parameters(2)->set_group("sgd");
  job.mutable_parameters(3)->set_group("lion");
  // Muon's norm is huge; 2, 3 and 6 make 7.
  const v1::StepDecision decision = DecideOn(job, {1e24, 4, 9, 36, 0});
  EXPECT_EQ(decision.live_norm(), 7);
  ASSERT_EQ(decision.norms_size(), 4);
  for (const v1::GroupNorm& norm : decision.norms()) {
    const bool is_muon = norm.group() == "muon";
    EXPECT_EQ(norm.exempt(), is_muon) << norm.group();
    EXPECT_EQ(norm.clip_factor(), is_muon ? 1 : 1 / (7 + 1e-6)) << norm.group();
  }
}

// Edge 5: a rule is clipped even if Muon is the only other rule in the chain.
TEST(DecideClipTest, AnyRuleClipsAloneBesideMuon) {
  for (const v1::Rule rule : {v1::RULE_ADAMW, v1::RULE_SGD, v1::RULE_LION}) {
    v1::JobDefinition job = TestJob();
    job.mutable_groups(kAdamW)->set_rule(rule);
    const v1::StepDecision decision = DecideOn(job, {1e24, 9, 0, 16, 0});
    EXPECT_EQ(decision.norms(kMuon).clip_factor(), 1) << rule;
    EXPECT_EQ(decision.norms(kAdamW).clip_factor(), 1 / (5 + 1e-6)) << rule;
    EXPECT_EQ(decision.clip_reductions_total(), 1) << rule;
  }
}

// [C8]: both norms are reported with either scope; only the factor differs.
TEST(DecideClipTest, TheScopeSaysWhichNormClips) {
  v1::JobDefinition job = TestJob();
  const std::vector<double> sums = {400, 9, 500, 16, 0};
  const v1::StepDecision live = DecideOn(job, sums);
  job.set_clip_scope(v1::CLIP_SCOPE_ALL);
  const v1::StepDecision all = DecideOn(job, sums);
  for (const v1::StepDecision* decision : {&live, &all}) {
    EXPECT_EQ(decision->grad_norm(), std::sqrt(925.0));
    EXPECT_EQ(decision->live_norm(), 5);
    EXPECT_EQ(decision->norms(kMuon).clip_factor(), 1);
  }
  EXPECT_EQ(live.norms(kAdamW).clip_factor(), 1 / (5 + 1e-6));
  EXPECT_EQ(all.norms(kAdamW).clip_factor(), 1 / (std::sqrt(925.0) + 1e-6));
}

// [T5], edge 7: exempt or off, no norm decides anything; the norms are still reported.
TEST(DecideClipTest, NoClipReductionWhereNothingCanBeClipped) {
  v1::JobDefinition muon_only = TestJob();
  muon_only.clear_parameters();
  AddParameter(muon_only, "w", {4, 4});
  v1::JobDefinition off = TestJob();
  off.set_max_grad_norm(0);
  for (const v1::JobDefinition& job : {muon_only, off}) {
    v1::StepDecision decision;
    for (int step = 0; step < 3; ++step) {
      const v1::StepRecord previous = RecordWith(decision);
      decision = DecideOn(job, {1e12, 0, 0, 0, 0}, &previous);
    }
    EXPECT_EQ(decision.clip_reductions_total(), 0);
    EXPECT_EQ(decision.grad_norm(), 1e6);
    EXPECT_EQ(decision.applied_updates(), 3);
  }
}

// The counter counts the steps whose decision read a norm ([T5]).
TEST(DecideClipTest, CountsTheStepsThatReadANorm) {
  v1::JobDefinition job = TestJob();
  v1::StepDecision decision = DecideOn(job, {1, 1, 1, 1, 0});
  EXPECT_EQ(decision.clip_reductions_total(), 1);
  v1::StepRecord previous = RecordWith(decision);
  // A step skipped for a NaN has no norm to read.
  decision = DecideOn(job, {1, NAN, 1, 1, 0}, &previous);
  EXPECT_EQ(decision.clip_reductions_total(), 1);
  previous = RecordWith(decision);
  job.set_max_grad_norm(0);
  job.set_grad_norm_skip_threshold(100);
  decision = DecideOn(job, {1, 1, 1, 1, 0}, &previous);
  EXPECT_EQ(decision.clip_reductions_total(), 2);
}

// A norm that no decision reads is not in the record ([T5]); the factors do not change.
TEST(DecideClipTest, WithoutAReportOnlyNormsThatDecideAreRecorded) {
  v1::JobDefinition job = JobWithSeparateGroup();
  const std::vector<double> sums = {400, 9, 500, 1e6, 0};
  const v1::StepDecision with = DecideOn(job, sums);
  job.set_report_norms(v1::REPORT_NORMS_OFF);
  const v1::StepDecision without = DecideOn(job, sums);
  EXPECT_FALSE(without.has_grad_norm());
  EXPECT_EQ(without.live_norm(), 3);
  for (int g = 0; g < 2; ++g) {
    EXPECT_FALSE(without.norms(g).has_norm());
    EXPECT_EQ(without.norms(g).clip_factor(), with.norms(g).clip_factor());
    EXPECT_FALSE(without.norm_groups(g).has_norm());
    EXPECT_EQ(without.norm_groups(g).live_norm(), with.norm_groups(g).live_norm());
    EXPECT_EQ(without.norm_groups(g).clip_factor(), with.norm_groups(g).clip_factor());
  }
  job.set_max_grad_norm(0);
  EXPECT_FALSE(DecideOn(job, sums).has_live_norm());
}

}  // namespace
}  // namespace kaon::job
