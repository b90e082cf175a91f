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
