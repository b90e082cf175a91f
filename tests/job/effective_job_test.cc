#include "job/effective_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "job/presets.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

TEST(EffectiveTest, FillsUnsetOptionsWithTheDocumentedDefaults) {
  const v1::JobDefinition job = *Effective(SmallJob());
  const v1::MuonOptions& muon = job.groups(0).muon();
  EXPECT_EQ(muon.momentum(), 0.95);
  EXPECT_TRUE(muon.nesterov());
  EXPECT_EQ(muon.ns_steps(), 5u);
  EXPECT_EQ(muon.scale(), v1::UPDATE_SCALE_MATCH_RMS_ADAMW);
  EXPECT_EQ(job.groups(1).adamw().beta2(), 0.95);
  EXPECT_EQ(job.groups(1).adamw().eps(), 1e-8);
  EXPECT_EQ(job.loss_scaler().initial_scale(), 1);
}

// The default is bf16, or fp32 if the other options refuse bf16 ([N6]).
TEST(EffectiveTest, AnOpenNewtonSchulzDTypeIsBFloat16WhereThereIsRoom) {
  const auto dtype_with = [](const std::function<void(v1::MuonOptions&)>& change) {
    v1::JobDefinition job = SmallJob();
    change(*job.mutable_groups(0)->mutable_muon());
    return Effective(job)->groups(0).muon().ns_dtype();
  };
  const auto of_set = [&](v1::NewtonSchulzCoefficients set, v1::NewtonSchulzForm form) {
    return dtype_with([&](v1::MuonOptions& muon) {
      muon.set_ns_coefficients(set);
      muon.mutable_newton_schulz()->set_form(form);
    });
  };
  using enum v1::NewtonSchulzCoefficients;
  for (const auto form : {v1::NEWTON_SCHULZ_FORM_UNSPECIFIED, v1::NEWTON_SCHULZ_FORM_GRAM}) {
    for (const auto set :
         {NEWTON_SCHULZ_COEFFICIENTS_UNSPECIFIED, NEWTON_SCHULZ_COEFFICIENTS_POLAR_EXPRESS,
          NEWTON_SCHULZ_COEFFICIENTS_DEEPSEEK_V4}) {
      EXPECT_EQ(of_set(set, form), v1::NEWTON_SCHULZ_DTYPE_BFLOAT16) << set;
    }
    for (const auto set : {NEWTON_SCHULZ_COEFFICIENTS_CANS, NEWTON_SCHULZ_COEFFICIENTS_CUBIC5}) {
      EXPECT_EQ(of_set(set, form), v1::NEWTON_SCHULZ_DTYPE_FLOAT32) << set;
    }
  }
  EXPECT_EQ(dtype_with([](v1::MuonOptions& muon) {
              muon.mutable_newton_schulz()->set_form(v1::NEWTON_SCHULZ_FORM_GRAM);
              muon.mutable_newton_schulz()->add_gram_restarts(4);
            }),
            v1::NEWTON_SCHULZ_DTYPE_FLOAT32);
  EXPECT_EQ(
      dtype_with([](v1::MuonOptions& muon) { muon.set_ns_dtype(v1::NEWTON_SCHULZ_DTYPE_FLOAT32); }),
      v1::NEWTON_SCHULZ_DTYPE_FLOAT32);
}

TEST(EffectiveTest, SaysHowLongAWorkerIsWaitedForUnlessItIsForEver) {
  v1::JobDefinition job = SmallJob();
  EXPECT_EQ(Effective(job)->worker_loss(), v1::WORKER_LOSS_POLICY_WAIT);
  EXPECT_FALSE(Effective(job)->has_worker_loss_seconds());
  job.set_worker_loss(v1::WORKER_LOSS_POLICY_SHRINK);
  EXPECT_EQ(Effective(job)->worker_loss_seconds(), 60);
  job.set_worker_loss_seconds(5);
  EXPECT_EQ(Effective(job)->worker_loss_seconds(), 5);
}

TEST(EffectiveTest, KeepsOptionsThatAreSetToTheirZero) {
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(0)->mutable_muon()->set_momentum(0);
  job.mutable_groups(0)->mutable_muon()->set_nesterov(false);
  const v1::JobDefinition effective = *Effective(job);
  EXPECT_EQ(effective.groups(0).muon().momentum(), 0);
  EXPECT_FALSE(effective.groups(0).muon().nesterov());
}

// A preset's request as short as it can be.
v1::JobDefinition PresetJob(const std::string& preset) {
  v1::JobDefinition job = SmallJob();
  job.clear_groups();
  job.clear_matrix_group();
  job.clear_scalar_group();
  job.clear_max_grad_norm();
  job.set_preset(preset);
  return job;
}

TEST(EffectiveTest, ChangesNothingTheSecondTime) {
  std::vector<v1::JobDefinition> jobs = {SmallJob()};
  for (const std::string& preset : PresetNames()) jobs.push_back(PresetJob(preset));
  jobs[0].mutable_groups(0)->mutable_muon()->mutable_newton_schulz()->set_form(
      v1::NEWTON_SCHULZ_FORM_GRAM);
  jobs[0].mutable_loss_scaler()->set_dynamic(true);
  jobs[0].add_norm_groups()->set_name("mtp");
  for (const v1::JobDefinition& job : jobs) {
    const v1::JobDefinition once = *Effective(job);
    EXPECT_EQ(Effective(once)->SerializeAsString(), once.SerializeAsString()) << job.preset();
  }
}

TEST(EffectiveTest, GivesEqualMessagesForWhatMeansTheSame) {
  // No groups at all is the preset `default`.
  EXPECT_EQ(Effective(PresetJob(""))->SerializeAsString(),
            Effective(PresetJob("default"))->SerializeAsString());

  // A preset's values may be written out as well, and a default too.
  v1::JobDefinition explicit_job = PresetJob("adamw");
  v1::ParameterGroup& scalars = *explicit_job.add_groups();
  scalars.set_name("scalars");
  scalars.set_rule(v1::RULE_ADAMW);
  scalars.mutable_adamw()->set_beta2(0.999);
  scalars.set_clip_policy(v1::CLIP_POLICY_CLIP);
  scalars.set_norm_group("main");
  explicit_job.mutable_parameters(0)->mutable_layout();
  explicit_job.add_norm_groups()->set_name("main");
  EXPECT_EQ(Effective(explicit_job)->SerializeAsString(),
            Effective(PresetJob("adamw"))->SerializeAsString());
}

// [C3]: main is always there; declared, its limit is the job's.
TEST(EffectiveTest, GivesNormGroupsTheJobsLimitUnlessTheyHaveTheirOwn) {
  v1::JobDefinition job = SmallJob();
  job.add_norm_groups()->set_name("mtp");
  v1::NormGroup& main = *job.add_norm_groups();
  main.set_name("main");
  main.set_max_grad_norm(0.25);
  EXPECT_THAT(
      std::string(Effective(job).status().message()),
      ::testing::HasSubstr("norm group main: max_grad_norm is 0.25, the job's max_grad_norm"));
  job.clear_max_grad_norm();
  const v1::JobDefinition effective = *Effective(job);
  ASSERT_EQ(effective.norm_groups_size(), 1);
  EXPECT_EQ(effective.norm_groups(0).max_grad_norm(), 0.25);
  EXPECT_EQ(effective.max_grad_norm(), 0.25);
}

// Effective chooses steps ([N3]) and Gram restarts ([N7]) by the coefficients.
TEST(EffectiveTest, ChoosesStepsAndRestartsByTheCoefficients) {
  v1::JobDefinition job = SmallJob();
  v1::MuonOptions& muon = *job.mutable_groups(0)->mutable_muon();
  muon.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_DEEPSEEK_V4);
  EXPECT_EQ(Effective(job)->groups(0).muon().ns_steps(), 10u);
  muon.mutable_newton_schulz()->set_form(v1::NEWTON_SCHULZ_FORM_GRAM);
  EXPECT_THAT(Effective(job)->groups(0).muon().newton_schulz().gram_restarts(),
              ::testing::ElementsAre(2, 4, 6, 8));
  muon.set_ns_steps(5);
  EXPECT_THAT(Effective(job)->groups(0).muon().newton_schulz().gram_restarts(),
              ::testing::ElementsAre(2));
  // Out of range: refused later, but it must not fill the memory here.
  muon.set_ns_steps(4000000000u);
  EXPECT_LT(Effective(job)->groups(0).muon().newton_schulz().gram_restarts_size(), 50);
  muon.clear_ns_steps();
  muon.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_CUSTOM);
  muon.mutable_newton_schulz()->set_custom_repeat(v1::NEWTON_SCHULZ_REPEAT_FIXED);
  for (int i = 0; i < 3; ++i) muon.mutable_newton_schulz()->add_custom()->set_a(1);
  EXPECT_EQ(Effective(job)->groups(0).muon().ns_steps(), 3u);
}

// The clip policy defaults to that of the rule ([C7]).
TEST(EffectiveTest, WritesTheClipPolicyOfTheRuleOutAndKeepsOneThatIsNotKnown) {
  v1::JobDefinition job = SmallJob();
  EXPECT_EQ(Effective(job)->groups(0).clip_policy(), v1::CLIP_POLICY_EXEMPT);
  EXPECT_EQ(Effective(job)->groups(1).clip_policy(), v1::CLIP_POLICY_CLIP);
  job.mutable_groups(0)->set_clip_policy(static_cast<v1::ClipPolicy>(9));
  EXPECT_EQ(Effective(job)->groups(0).clip_policy(), 9);
}

TEST(EffectiveTest, RefusesAPresetThatIsNotKnown) {
  v1::JobDefinition job = SmallJob();
  job.set_preset("best");
  const absl::Status status = Effective(job).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("preset is \"best\""));
}

}  // namespace
}  // namespace kaon::job
