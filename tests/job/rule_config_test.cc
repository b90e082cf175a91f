#include "job/rule_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "job/effective_job.h"
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

TEST(RuleConfigTest, CarriesEveryOptionOfMuon) {
  v1::JobDefinition job = SmallJob();
  v1::MuonOptions& options = *job.mutable_groups(0)->mutable_muon();
  options.set_momentum(0.5);
  options.set_nesterov(false);
  options.set_momentum_form(v1::MOMENTUM_FORM_SUM);
  options.set_scale_extra(3);
  options.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_CUSTOM);
  options.set_ns_steps(7);
  options.set_ns_dtype(v1::NEWTON_SCHULZ_DTYPE_FLOAT16);
  v1::NewtonSchulzOptions& iteration = *options.mutable_newton_schulz();
  v1::NewtonSchulzTriple& triple = *iteration.add_custom();
  triple.set_a(2);
  triple.set_b(-1.5);
  triple.set_c2(0.5);
  iteration.set_custom_repeat(v1::NEWTON_SCHULZ_REPEAT_CYCLE);
  iteration.set_norm_mode(v1::NORM_MODE_CLAMP_EPS);
  iteration.set_norm_eps(1e-5);
  iteration.set_form(v1::NEWTON_SCHULZ_FORM_GRAM);
  iteration.add_gram_restarts(3);
  iteration.add_gram_restarts(5);
  const auto muon = std::get<kernels::MuonConfig>(RuleConfigOf(Effective(job)->groups(0)));
  EXPECT_EQ(muon.momentum, 0.5);
  EXPECT_FALSE(muon.nesterov);
  EXPECT_EQ(muon.momentum_form, kernels::MomentumForm::kSum);
  EXPECT_EQ(muon.scale_extra, 3);
  const kernels::NewtonSchulzConfig& config = muon.newton_schulz;
  EXPECT_EQ(config.coefficients, kernels::NsCoefficients::kCustom);
  ASSERT_EQ(config.custom.size(), 1u);
  EXPECT_EQ(config.custom[0].a, 2);
  EXPECT_EQ(config.custom[0].b, -1.5);
  EXPECT_EQ(config.custom[0].c2, 0.5);
  EXPECT_EQ(config.custom_repeat, kernels::NsRepeat::kCycle);
  EXPECT_EQ(config.steps, 7);
  EXPECT_EQ(config.dtype, kernels::NsDType::kFloat16);
  EXPECT_EQ(config.norm_mode, kernels::NormMode::kClampEps);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.form, kernels::NsForm::kGram);
  EXPECT_EQ(config.gram_restarts, (std::vector<int>{3, 5}));
}

TEST(RuleConfigTest, CarriesALayoutsSizes) {
  v1::MatrixLayout layout;
  layout.set_kind(v1::MATRIX_LAYOUT_KIND_SPLIT_COLS);
  layout.add_sizes(3);
  layout.add_sizes(1);
  EXPECT_EQ(LayoutOf(layout).kind, kernels::MatrixLayoutKind::kSplitCols);
  EXPECT_EQ(LayoutOf(layout).sizes, (std::vector<uint64_t>{3, 1}));
  EXPECT_EQ(LayoutOf(layout).num_heads, 0u);
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
