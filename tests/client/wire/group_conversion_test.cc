#include "client/wire/group_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "job/resolve.h"

namespace kaon::client {
namespace {

TEST(GroupConversionTest, WhatIsUnsetStaysUnset) {
  kaon::ParameterGroup group;
  group.name = "g";
  const v1::ParameterGroup wire = GroupToProto(group);
  EXPECT_EQ(wire.rule(), v1::RULE_UNSPECIFIED);
  EXPECT_EQ(GroupFromProto(wire).rule, std::nullopt);
  EXPECT_FALSE(wire.has_lr());
  EXPECT_FALSE(wire.has_weight_decay());
  EXPECT_FALSE(wire.has_muon());
  EXPECT_FALSE(wire.has_adamw());
  EXPECT_FALSE(wire.has_schedule());
  EXPECT_EQ(wire.clip_policy(), v1::CLIP_POLICY_UNSPECIFIED);
}

// The group must not get the first rule of the enumeration.
TEST(GroupConversionTest, AGroupWithoutARuleIsRefusedByName) {
  kaon::ParameterGroup group;
  group.name = "g";
  group.lr = 0.5;
  v1::JobDefinition job;
  job.set_name("small");
  job.set_world_size(1);
  *job.add_groups() = GroupToProto(group);
  job.set_scalar_group("g");
  v1::ParameterSpec& bias = *job.add_parameters();
  bias.set_name("bias");
  bias.add_shape(4);
  bias.set_dtype(v1::DTYPE_FLOAT32);
  EXPECT_THAT(std::string(job::Resolve(job).status().message()),
              ::testing::HasSubstr("group g: rule is unset"));
  group.rule = Rule::kAdamW;
  *job.mutable_groups(0) = GroupToProto(group);
  EXPECT_TRUE(job::Resolve(job).ok());
}

TEST(GroupConversionTest, WhatIsSetToItsZeroIsSet) {
  kaon::ParameterGroup group;
  group.rule = Rule::kMuon;
  group.lr = 0;
  group.muon.momentum = 0;
  group.muon.nesterov = false;
  const v1::ParameterGroup wire = GroupToProto(group);
  EXPECT_TRUE(wire.has_lr());
  EXPECT_TRUE(wire.muon().has_momentum());
  EXPECT_TRUE(wire.muon().has_nesterov());
}

// Edge 51: it is the coordinator that refuses them, so they must reach it.
TEST(GroupConversionTest, OptionsOfAnotherRuleAreSent) {
  kaon::ParameterGroup group;
  group.rule = Rule::kAdamW;
  group.muon.newton_schulz.norm_eps = 1e-8;
  EXPECT_TRUE(GroupToProto(group).has_muon());
}

TEST(GroupConversionTest, RoundTripsEveryOption) {
  kaon::ParameterGroup group;
  group.name = "g";
  group.rule = Rule::kSgd;
  group.lr = 0.5;
  group.sgd = {0.9, 0.25, true};
  group.lion = {0.8, 0.7};
  group.adamw = {0.1, 0.2, 0.3, AdamEpsMode::kUncorrected, true, false, StateDType::kSqrtUInt8};
  group.muon.ns_coefficients = NewtonSchulzCoefficients::kCustom;
  group.muon.ns_steps = 7;
  group.muon.scale = UpdateScale::kMaxDim;
  group.muon.ns_dtype = NewtonSchulzDType::kFloat16;
  group.muon.momentum_form = MomentumForm::kSum;
  group.muon.scale_extra = 2;
  group.muon.newton_schulz.custom = {{1, 2, 3}, {4, 5, 6}};
  group.muon.newton_schulz.custom_repeat = NewtonSchulzRepeat::kCycle;
  group.muon.newton_schulz.form = NewtonSchulzForm::kGram;
  group.muon.newton_schulz.gram_restarts = {2, 4};
  group.norm_group = "mtp";
  group.decay_mode = DecayMode::kPalm;
  group.momentum_dtype = StateDType::kInt8;
  group.missing_gradient = MissingGradient::kZero;
  group.clip_policy = ClipPolicy::kExempt;
  group.schedule = Schedule{ScheduleKind::kWarmupStableDecay, 1, 9, 3, 0.5};
  const v1::ParameterGroup wire = GroupToProto(group);
  EXPECT_EQ(wire.muon().newton_schulz().custom(1).c2(), 6);
  EXPECT_EQ(wire.schedule().decay_steps(), 3u);
  EXPECT_EQ(wire.decay_mode(), v1::DECAY_MODE_PALM);
  EXPECT_EQ(GroupToProto(GroupFromProto(wire)).SerializeAsString(), wire.SerializeAsString());
}

}  // namespace
}  // namespace kaon::client
