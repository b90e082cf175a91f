#include "job/rule_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/effective.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

TEST(RuleConfigTest, CarriesTheGroupsOptionsAndTheParametersOwn) {
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(0)->set_weight_decay(0.5);
  job.mutable_groups(0)->mutable_muon()->set_scale(v1::UPDATE_SCALE_UNIT_RMS_NORM);
  job.mutable_groups(0)->set_momentum_dtype(v1::STATE_DTYPE_INT8);
  const v1::JobDefinition effective = *Effective(job);
  v1::ParameterSpec parameter;
  parameter.set_transposed(true);
  v1::ParameterPlacement placement;
  placement.set_weight_decay_multiplier(0.5);
  placement.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_HEADS);
  placement.mutable_layout()->set_num_heads(2);
  const auto muon =
      std::get<kernels::MuonConfig>(RuleConfigOf(effective.groups(0), parameter, placement));
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_EQ(muon.newton_schulz.steps, 5);
  EXPECT_EQ(muon.weight_decay, 0.25);
  EXPECT_EQ(muon.scale, kernels::UpdateScale::kUnitRmsNorm);
  EXPECT_EQ(muon.momentum_dtype, kernels::StateDType::kInt8);
  EXPECT_TRUE(muon.layout.transposed);
  EXPECT_EQ(muon.layout.kind, kernels::MatrixLayoutKind::kHeads);
  EXPECT_EQ(muon.layout.num_heads, 2u);
}

TEST(RuleConfigTest, CarriesTheOptionsOfElementWiseRules) {
  v1::JobDefinition job = SmallJob();
  v1::ParameterGroup& group = *job.mutable_groups(1);
  group.mutable_adamw()->set_eps_mode(v1::ADAM_EPS_MODE_UNCORRECTED);
  group.mutable_adamw()->set_amsgrad(true);
  group.mutable_adamw()->set_bias_correction(false);
  group.set_decay_mode(v1::DECAY_MODE_PALM);
  const auto adamw = std::get<kernels::AdamWConfig>(RuleConfigOf(Effective(job)->groups(1)));
  EXPECT_EQ(adamw.beta2, 0.95);
  EXPECT_EQ(adamw.eps_mode, kernels::AdamEpsMode::kUncorrected);
  EXPECT_TRUE(adamw.amsgrad);
  EXPECT_FALSE(adamw.bias_correction);
  EXPECT_EQ(adamw.decay_mode, kernels::DecayMode::kPalm);

  group = SmallJob().groups(1);
  group.set_rule(v1::RULE_SGD);
  group.mutable_sgd()->set_momentum(0.5);
  group.mutable_sgd()->set_nesterov(true);
  group.set_momentum_dtype(v1::STATE_DTYPE_BFLOAT16);
  const auto sgd = std::get<kernels::SgdConfig>(RuleConfigOf(Effective(job)->groups(1)));
  EXPECT_EQ(sgd.momentum, 0.5);
  EXPECT_EQ(sgd.dampening, 0);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_EQ(sgd.decay_mode, kernels::DecayMode::kL2);
  EXPECT_EQ(sgd.momentum_dtype, kernels::StateDType::kBFloat16);

  group = SmallJob().groups(1);
  group.set_rule(v1::RULE_LION);
  group.mutable_lion()->set_beta1(0.5);
  group.set_weight_decay(2);
  const auto lion = std::get<kernels::LionConfig>(RuleConfigOf(Effective(job)->groups(1)));
  EXPECT_EQ(lion.beta1, 0.5);
  EXPECT_EQ(lion.beta2, 0.98);
  EXPECT_EQ(lion.weight_decay, 2);
  EXPECT_EQ(lion.decay_mode, kernels::DecayMode::kDecoupled);
}

// Edge 18.
TEST(RuleConfigTest, TwoMuonGroupsKeepTheirOwnOptions) {
  v1::JobDefinition job = SmallJob();
  *job.add_groups() = job.groups(0);
  v1::ParameterGroup& second = *job.mutable_groups(job.groups_size() - 1);
  second.set_name("other_matrices");
  second.set_lr(0.5);
  second.mutable_muon()->set_momentum(0.5);
  second.mutable_muon()->set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_YOU);
  const v1::JobDefinition effective = *Effective(job);
  const auto config_of = [&](int group) {
    return std::get<kernels::MuonConfig>(
        RuleConfigOf(effective.groups(group), v1::ParameterSpec(), v1::ParameterPlacement()));
  };
  EXPECT_EQ(config_of(0).momentum, 0.95);
  EXPECT_EQ(config_of(0).newton_schulz.coefficients, kernels::NsCoefficients::kJordan);
  EXPECT_EQ(config_of(job.groups_size() - 1).momentum, 0.5);
  EXPECT_EQ(config_of(job.groups_size() - 1).newton_schulz.coefficients,
            kernels::NsCoefficients::kYou);
  EXPECT_NE(effective.groups(0).lr(), effective.groups(job.groups_size() - 1).lr());
}

// [C7], edge 4: it follows from the rule wherever a configuration is made anew.
TEST(RuleConfigTest, ExemptsScaleInvariantRulesFromClippingUnlessThePolicySaysOtherwise) {
  v1::JobDefinition job = *Effective(SmallJob());
  EXPECT_TRUE(IsClipExempt(job.groups(0)));
  job.mutable_groups(0)->set_clip_policy(v1::CLIP_POLICY_CLIP);
  EXPECT_FALSE(IsClipExempt(job.groups(0)));
  EXPECT_FALSE(IsClipExempt(job.groups(1)));
  job.mutable_groups(1)->set_clip_policy(v1::CLIP_POLICY_EXEMPT);
  EXPECT_TRUE(IsClipExempt(job.groups(1)));
}

}  // namespace
}  // namespace kaon::job
