// Skipped steps, and the state that the log carries from step to step: [T2b]-[T5], [T7] and [T8] of
// numerics.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/job/decide_fixture.h"

namespace kaon::job {
namespace {

using coordinator::AddParameter;
using coordinator::TestJob;
using ::testing::HasSubstr;

v1::JobDefinition JobWithThreshold(double threshold) {
  v1::JobDefinition job = TestJob();
  job.set_grad_norm_skip_threshold(threshold);
  return job;
}

v1::JobDefinition JobWithScaler() {
  v1::JobDefinition job = TestJob();
  v1::LossScaler& scaler = *job.mutable_loss_scaler();
  scaler.set_dynamic(true);
  scaler.set_initial_scale(8);
  scaler.set_growth_interval(2);
  scaler.set_hysteresis(1);
  return job;
}

// The decision that registers `job`.
v1::StepDecision Registration(const v1::JobDefinition& definition) {
  v1::StepPlan plan;
  *plan.mutable_registration() = Register(definition, 1);
  return Decide(plan.registration(), plan, std::vector<v1::Prepared>(1), nullptr);
}

// Returns the decision on a step after `before`, which ran with the scale that `before` set.
v1::StepDecision StepAfter(const v1::JobDefinition& definition, const v1::StepDecision& before,
                           double sum) {
  const v1::RegisterBody job = Register(definition, 1);
  v1::StepPlan plan = TrainPlan();
  plan.mutable_step()->set_loss_scale(before.next_loss_scale());
  const v1::StepRecord previous = RecordWith(before);
  return Decide(job, plan, Votes(job, {1, sum, 1, 1, 0}), &previous);
}

// [T3]: wherever it is - exempt, live, a copy, a separate norm group - the whole step is skipped.
TEST(DecideSkipTest, ANonFiniteGradientAnywhereSkipsTheWholeStep) {
  v1::JobDefinition definition = TestJob();
  definition.add_norm_groups()->set_name("mtp");
  definition.mutable_parameters(3)->set_norm_group("mtp");
  v1::RegisterBody job = Register(definition, 2);
  job.mutable_placement()->mutable_parameters(1)->set_counted(false);
  for (const int id : {0, 1, 2, 3}) {
    std::vector<v1::Prepared> votes = Votes(job, {1, 1, 1, 1, 0});
    SumsOf(votes, id).set_num_non_finite(1);
    const v1::StepDecision decision = Decide(job, TrainPlan(), votes, nullptr);
    EXPECT_EQ(decision.outcome(), v1::OUTCOME_SKIP) << id;
    EXPECT_EQ(decision.norms_size() + decision.norm_groups_size(), 0) << id;
    // Absent: 0 would be the norm of gradients that are 0.
    EXPECT_FALSE(decision.has_grad_norm()) << id;
    EXPECT_FALSE(decision.has_live_norm()) << id;
    EXPECT_THAT(decision.reason(), HasSubstr(definition.parameters(id).name()));
  }
}

// A plan whose groups all have this learning rate.
v1::StepPlan PlanWithRate(const v1::RegisterBody& job, double lr) {
  v1::StepPlan plan = TrainPlan();
  for (int g = 0; g < job.definition().groups_size(); ++g) {
    plan.mutable_step()->add_rates()->set_learning_rate(lr);
  }
  return plan;
}

// [T10], for every rule, by the gradient, the learning rate and either kind of decay.
TEST(DecideSkipTest, AWeightThatMightNotStayFiniteSkipsTheWholeStep) {
  struct Update {
    v1::Rule rule;
    double lr;
    double weight_decay;
    v1::DecayMode decay_mode;
    double weight;
    double gradient;
    bool applied;
  };
  constexpr auto kDecoupled = v1::DECAY_MODE_DECOUPLED;
  constexpr auto kL2 = v1::DECAY_MODE_L2;
  const Update updates[] = {
      {v1::RULE_SGD, 3e38, 0, kDecoupled, 1, 1e18, false},
      {v1::RULE_SGD, 3e38, 0, kDecoupled, 1, 0.5, true},
      {v1::RULE_SGD, 1e-3, 0, kDecoupled, 1, 1e18, true},
      {v1::RULE_SGD, 1, 0, kDecoupled, 3.4028e38, 1, true},
      {v1::RULE_SGD, 1e35, 0, kDecoupled, 3.4028e38, 1, false},
      {v1::RULE_ADAMW, 3e38, 0, kDecoupled, 1, 1, true},
      {v1::RULE_ADAMW, 3e38, 0, kDecoupled, 1e38, 1, false},
      {v1::RULE_LION, 3e38, 0, kDecoupled, 1e38, 1, false},
      {v1::RULE_MUON, 3e38, 0, kDecoupled, 1e38, 1, false},
      {v1::RULE_ADAMW, 1, 1e3, kDecoupled, 1e37, 1, false},
      {v1::RULE_ADAMW, 1, 1e3, v1::DECAY_MODE_INDEPENDENT, 1e37, 1, false},
      {v1::RULE_ADAMW, 40, 1, v1::DECAY_MODE_PALM, 1e36, 1, false},
      {v1::RULE_ADAMW, 1, 0.5, kDecoupled, 3e38, 1, true},
      {v1::RULE_SGD, 1e-10, 1, kL2, 1e19, 1, false},
      {v1::RULE_SGD, 1e-10, 1e-3, kL2, 1e19, 1, true},
  };
  v1::JobDefinition definition = TestJob();
  for (const Update& update : updates) {
    for (const int id : {0, 1}) {
      v1::RegisterBody job = Register(definition, 2);
      for (v1::ParameterGroup& group : *job.mutable_definition()->mutable_groups()) {
        group.set_rule(update.rule);
        group.mutable_muon()->set_scale_extra(1);
        group.set_weight_decay(update.weight_decay);
        group.set_decay_mode(update.decay_mode);
        group.set_clip_policy(v1::CLIP_POLICY_EXEMPT);
      }
      std::vector<v1::Prepared> votes = Votes(job, {1, 1, 1, 1, 0});
      SumsOf(votes, id).set_absolute_max(update.gradient);
      SumsOf(votes, id).set_weight_absolute_max(update.weight);
      const v1::StepDecision decision = Decide(job, PlanWithRate(job, update.lr), votes, nullptr);
      EXPECT_EQ(decision.outcome() == v1::OUTCOME_APPLY, update.applied)
          << &update - updates << " " << decision.reason();
      if (update.applied) continue;
      EXPECT_THAT(decision.reason(), HasSubstr(definition.parameters(id).name()));
      EXPECT_THAT(decision.reason(), HasSubstr("must be <= 3.4"));
    }
  }
}

// [T3], [T5]: seen without any sum of squares.
TEST(DecideSkipTest, ANonFiniteGradientIsSeenWhenNobodyTakesNorms) {
  v1::JobDefinition definition = TestJob();
  definition.set_max_grad_norm(0);
  definition.set_report_norms(v1::REPORT_NORMS_OFF);
  const v1::RegisterBody job = Register(definition, 1);
  std::vector<v1::Prepared> votes = Votes(job, {0, 0, 0, 0, 0});
  SumsOf(votes, 2).set_num_non_finite(3);
  EXPECT_EQ(Decide(job, TrainPlan(), votes, nullptr).outcome(), v1::OUTCOME_SKIP);
}

// The decision on an element of this size in layer0.w (Muon, exempt) or layer0.b (AdamW).
v1::StepDecision DecideOnElement(const v1::JobDefinition& definition, int id, double value) {
  const v1::RegisterBody job = Register(definition, 2);
  std::vector<v1::Prepared> votes = Votes(job, {0, 0, 0, 0, 0});
  SumsOf(votes, id).set_absolute_max(value);
  SumsOf(votes, id).set_sum_squares(value * value);
  return Decide(job, TrainPlan(), votes, nullptr);
}

// The squares and sums of accepted elements stay finite in fp32 ([T3]).
TEST(DecideSkipTest, AnElementTooLargeToBeSteppedWithIsAnOverflow) {
  v1::JobDefinition off = TestJob();
  off.set_max_grad_norm(0);
  for (const int id : {0, 1}) {
    EXPECT_EQ(DecideOnElement(off, id, kMostGradient).outcome(), v1::OUTCOME_APPLY) << id;
    for (const double value : {std::nextafter(0x1p62f, HUGE_VALF) * 1.0, 1e21, 2e38}) {
      const v1::StepDecision decision = DecideOnElement(off, id, value);
      EXPECT_EQ(decision.outcome(), v1::OUTCOME_SKIP) << id << " " << value;
      EXPECT_EQ(decision.applied_updates(), 0);
      // Its norms are finite, and in the record.
      EXPECT_EQ(decision.grad_norm(), value);
    }
  }
  EXPECT_EQ(DecideOnElement(off, 1, 2e38).reason(),
            "gradient of parameter layer0.b has an element of size 2e+38, must be <= 2^62 = "
            "4.61169e+18 after clipping");
}

// The limit of an element applies after clipping ([T3], [C5]). Exempt elements are not clipped
// ([C7]).
TEST(DecideSkipTest, AClippedElementIsJudgedAfterClipping) {
  v1::JobDefinition job = TestJob();
  EXPECT_EQ(DecideOnElement(job, 1, 2e38).outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(DecideOnElement(job, 0, 2e38).outcome(), v1::OUTCOME_SKIP);
  job.set_clip_floor(0x1p-62);
  EXPECT_EQ(DecideOnElement(job, 1, 0x1p124).outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(DecideOnElement(job, 1, 0x1p125).outcome(), v1::OUTCOME_SKIP);
  EXPECT_THAT(DecideOnElement(job, 1, 0x1p125).reason(), HasSubstr("4.25353e+37 * 2.1684e-19"));
}

// The limit applies only to elements that would be stepped ([T3], [T7], [T8]).
TEST(DecideSkipTest, AnElementThatIsNotSteppedWithIsNeverTooLarge) {
  v1::JobDefinition definition = TestJob();
  definition.mutable_parameters(1)->set_frozen(true);
  const v1::RegisterBody job = Register(definition, 1);
  std::vector<v1::Prepared> votes = Votes(job, {0, 0, 0, 0, 0});
  SumsOf(votes, 0).set_missing(true);
  SumsOf(votes, 0).set_absolute_max(2e38);
  v1::ParameterSums& stray = *votes[0].add_sums();
  stray.set_parameter_id(1);
  stray.set_absolute_max(2e38);
  EXPECT_EQ(Decide(job, TrainPlan(), votes, nullptr).outcome(), v1::OUTCOME_APPLY);
}

// [T5]: the largest element is no norm; without clipping none is read.
TEST(DecideSkipTest, LookingForLargeElementsReadsNoNorm) {
  v1::JobDefinition muon_only = TestJob();
  muon_only.clear_parameters();
  AddParameter(muon_only, "w", {4, 4});
  const v1::RegisterBody job = Register(muon_only, 1);
  std::vector<v1::Prepared> votes = Votes(job, {0});
  SumsOf(votes, 0).set_absolute_max(2e38);
  const v1::StepDecision decision = Decide(job, TrainPlan(), votes, nullptr);
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_SKIP);
  EXPECT_EQ(decision.clip_reductions_total(), 0);
}

// [T2b], [T3]: the scale that made it so large has to move.
TEST(DecideSkipTest, AnElementTooLargeMovesTheScale) {
  v1::JobDefinition definition = JobWithScaler();
  definition.set_max_grad_norm(0);
  // The check precedes the threshold, which would leave the scale alone.
  definition.set_grad_norm_skip_threshold(1);
  const v1::RegisterBody job = Register(definition, 1);
  const v1::StepRecord previous = RecordWith(Registration(definition));
  std::vector<v1::Prepared> votes = Votes(job, {0, 1e42, 0, 0, 0});
  SumsOf(votes, 1).set_absolute_max(1e21);
  const v1::StepDecision decision = Decide(job, TrainPlan(), votes, &previous);
  EXPECT_THAT(decision.reason(), HasSubstr("1e+21"));
  EXPECT_EQ(decision.next_loss_scale(), 4);
}

// [T4]: strictly above, before clipping; the reason names both values.
TEST(DecideSkipTest, ANormAboveTheThresholdSkips) {
  const v1::StepDecision decision = DecideOn(JobWithThreshold(4.5), {0, 9, 0, 16, 0});
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_SKIP);
  EXPECT_EQ(decision.reason(),
            "gradient norm 5 of norm group main is above grad_norm_skip_threshold 4.5");
  // The record has the norms, because they are finite.
  EXPECT_EQ(decision.norm_groups(0).live_norm(), 5);
  EXPECT_EQ(decision.applied_updates(), 0);
  EXPECT_EQ(DecideOn(JobWithThreshold(5), {0, 9, 0, 16, 0}).outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(DecideOn(JobWithThreshold(4.99), {0, 9, 0, 16, 0}).outcome(), v1::OUTCOME_SKIP);
}

// [T4], edge 6: Muon's norm of 6.2e6 does not trip it while Adam's is 4e-4.
TEST(DecideSkipTest, TheThresholdIgnoresExemptNorms) {
  v1::JobDefinition job = JobWithThreshold(100);
  const std::vector<double> sums = {6.2e6 * 6.2e6, 4e-4 * 4e-4, 0, 0, 0};
  EXPECT_EQ(DecideOn(job, sums).outcome(), v1::OUTCOME_APPLY);
  // Scope `all` is about clipping, so it does not change this.
  job.set_clip_scope(v1::CLIP_SCOPE_ALL);
  EXPECT_EQ(DecideOn(job, sums).outcome(), v1::OUTCOME_APPLY);
}

// [T4], edge 6: nothing live, nothing to check.
TEST(DecideSkipTest, AMuonOnlyJobIsNeverSkippedByTheThreshold) {
  v1::JobDefinition job = JobWithThreshold(1e-3);
  job.clear_parameters();
  AddParameter(job, "w", {4, 4});
  const v1::StepDecision decision = DecideOn(job, {1e12});
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(decision.clip_reductions_total(), 0);
}

// [T4], edge 6: NaN is never just "not greater".
TEST(DecideSkipTest, ANanNormDoesNotPassTheThreshold) {
  EXPECT_EQ(DecideOn(JobWithThreshold(1e9), {0, NAN, 0, 0, 0}).outcome(), v1::OUTCOME_SKIP);
}

// [T4], edge 9: separate norm groups neither count nor trigger.
TEST(DecideSkipTest, TheThresholdIgnoresSeparateNormGroups) {
  v1::JobDefinition job = JobWithThreshold(10);
  job.add_norm_groups()->set_name("mtp");
  job.mutable_parameters(3)->set_norm_group("mtp");
  EXPECT_EQ(DecideOn(job, {0, 9, 0, 1e12, 0}).outcome(), v1::OUTCOME_APPLY);
}

// [T4], edge 8: live groups of different rules and shards are added into one norm.
TEST(DecideSkipTest, TheThresholdAddsUpAllLiveGroups) {
  v1::JobDefinition job = JobWithThreshold(4.5);
  job.mutable_groups(0)->set_clip_policy(v1::CLIP_POLICY_CLIP);
  for (const int num_shards : {1, 2, 5}) {
    const v1::RegisterBody body = Register(job, num_shards);
    const v1::StepDecision decision =
        Decide(body, TrainPlan(), Votes(body, {16, 4, 0, 5, 0}), nullptr);
    EXPECT_EQ(decision.outcome(), v1::OUTCOME_SKIP);
    EXPECT_EQ(decision.live_norm(), 5);
  }
}

// Edge 52: schedules count applied steps only.
TEST(DecideSkipTest, SkippedStepsAreNotCountedAsUpdates) {
  v1::StepDecision decision = Registration(TestJob());
  EXPECT_EQ(decision.applied_updates(), 0);
  decision = StepAfter(TestJob(), decision, 1);
  decision = StepAfter(TestJob(), decision, NAN);
  EXPECT_EQ(decision.applied_updates(), 1);
  decision = StepAfter(JobWithThreshold(0.5), decision, 1);
  EXPECT_EQ(decision.applied_updates(), 1);
  decision = StepAfter(TestJob(), decision, 1);
  EXPECT_EQ(decision.applied_updates(), 2);
}

// The job's initial loss scale applies from its registration on ([T2b]).
TEST(DecideSkipTest, TheInitialScaleIsTheJobs) {
  const v1::StepDecision decision = Registration(JobWithScaler());
  EXPECT_EQ(decision.next_loss_scale(), 8);
  EXPECT_EQ(decision.loss_scaler().hysteresis_left(), 1);
  v1::JobDefinition constant = TestJob();
  constant.mutable_loss_scaler()->set_initial_scale(512);
  EXPECT_EQ(Registration(constant).next_loss_scale(), 512);
  EXPECT_FALSE(Registration(constant).has_loss_scaler());
  EXPECT_EQ(Registration(TestJob()).next_loss_scale(), 1);
}

// Edge 47: an overflow skips the step and halves the scale, and growth doubles it again ([T2b]).
TEST(DecideSkipTest, OverflowMovesTheScaleAndSkips) {
  const v1::JobDefinition job = JobWithScaler();
  v1::StepDecision decision = StepAfter(job, Registration(job), INFINITY);
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_SKIP);
  EXPECT_EQ(decision.next_loss_scale(), 4);
  decision = StepAfter(job, decision, 1);
  EXPECT_EQ(decision.next_loss_scale(), 4);
  decision = StepAfter(job, decision, 1);
  EXPECT_EQ(decision.next_loss_scale(), 8);
}

// [T2b], [T4]: a spike that the threshold skips is no overflow.
TEST(DecideSkipTest, TheThresholdDoesNotMoveTheScale) {
  v1::JobDefinition job = JobWithScaler();
  job.set_grad_norm_skip_threshold(0.5);
  v1::StepDecision decision = StepAfter(job, Registration(job), 1);
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_SKIP);
  EXPECT_EQ(decision.next_loss_scale(), 8);
  EXPECT_EQ(decision.loss_scaler().growth_steps(), 1);
}

// A constant loss scale never changes ([T2b]).
TEST(DecideSkipTest, AConstantScaleStaysThroughOverflows) {
  v1::JobDefinition job = TestJob();
  job.mutable_loss_scaler()->set_initial_scale(512);
  v1::StepDecision decision = Registration(job);
  for (const double sum : {1.0, static_cast<double>(INFINITY), 1.0}) {
    decision = StepAfter(job, decision, sum);
    EXPECT_EQ(decision.next_loss_scale(), 512);
  }
}

// protocol.md 2.1 rule 8: entries that are no train step hand everything on.
TEST(DecideSkipTest, OtherEntriesHandOnWhatIsCarried) {
  const v1::JobDefinition definition = JobWithScaler();
  const v1::RegisterBody job = Register(definition, 1);
  v1::StepRecord previous = RecordWith(StepAfter(definition, Registration(definition), 1));
  v1::StepPlan load;
  load.mutable_step()->set_kind(v1::STEP_KIND_LOAD_WEIGHTS);
  v1::StepPlan change;
  change.mutable_group_change();
  for (const v1::StepPlan& plan : {load, change}) {
    const v1::StepDecision decision = Decide(job, plan, Votes(job, {1, 1, 1, 1, 0}), &previous);
    EXPECT_EQ(decision.outcome(), v1::OUTCOME_APPLY);
    EXPECT_EQ(decision.next_loss_scale(), 8);
    EXPECT_EQ(decision.applied_updates(), 1);
    EXPECT_EQ(decision.clip_reductions_total(), 1);
    EXPECT_EQ(decision.loss_scaler().growth_steps(), 1);
  }
}

// [T8], edge 19: frozen parameters join no group and no norm, and a group may be empty.
TEST(DecideSkipTest, FrozenParametersAreInNoNorm) {
  v1::JobDefinition definition = TestJob();
  for (v1::ParameterSpec& parameter : *definition.mutable_parameters()) {
    if (parameter.shape_size() == 1) parameter.set_frozen(true);
  }
  const v1::RegisterBody job = Register(definition, 1);
  std::vector<v1::Prepared> votes = Votes(job, {9, 0, 16, 0, 0});
  v1::ParameterSums& stray = *votes[0].add_sums();
  stray.set_parameter_id(1);
  stray.set_sum_squares(1e12);
  const v1::StepDecision decision = Decide(job, TrainPlan(), votes, nullptr);
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(decision.grad_norm(), 5);
  EXPECT_EQ(decision.norms(1).norm(), 0);
  EXPECT_EQ(decision.norms(1).clip_factor(), 1);
}

// A parameter that no worker has a gradient for is in no norm ([T7]).
TEST(DecideSkipTest, MissingParametersAreInNoNorm) {
  const v1::RegisterBody job = Register(TestJob(), 1);
  std::vector<v1::Prepared> votes = Votes(job, {9, 1e12, 16, 4, 0});
  SumsOf(votes, 1).set_missing(true);
  const v1::StepDecision decision = Decide(job, TrainPlan(), votes, nullptr);
  EXPECT_EQ(decision.live_norm(), 2);
}

}  // namespace
}  // namespace kaon::job
