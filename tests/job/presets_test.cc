#include "job/presets.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "job/effective_job.h"
#include "job/resolve.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

using ::testing::HasSubstr;

// SmallJob with nothing but its parameters and a preset.
v1::JobDefinition PresetJob(const std::string& preset) {
  v1::JobDefinition job = SmallJob();
  job.clear_groups();
  job.clear_matrix_group();
  job.clear_scalar_group();
  job.clear_max_grad_norm();
  job.set_preset(preset);
  return job;
}

v1::JobDefinition Completed(const std::string& preset) { return *WithPreset(PresetJob(preset)); }

// Compares the whole job, defaults included, with the published sources that each file names. So
// neither a preset nor a default that it uses can change unnoticed.
TEST(PresetsTest, EveryPresetMeansWhatItsSourceSays) {
  for (const std::string& preset : PresetNames()) {
    std::ifstream file("tests/job/golden/" + preset + ".txtpb");
    ASSERT_TRUE(file.is_open()) << preset;
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    v1::JobDefinition golden;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &golden)) << preset;
    v1::JobDefinition requested;
    requested.set_preset(preset);
    const absl::StatusOr<v1::JobDefinition> job = Effective(requested);
    ASSERT_TRUE(job.ok()) << job.status();
    std::string differences;
    google::protobuf::util::MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&differences);
    EXPECT_TRUE(differencer.Compare(golden, *job)) << preset << ": " << differences;
  }
}

TEST(PresetsTest, EveryPresetMakesAJobOfParametersAlone) {
  for (const std::string& preset : PresetNames()) {
    const auto body = Resolve(PresetJob(preset));
    ASSERT_TRUE(body.ok()) << preset << ": " << body.status();
    EXPECT_EQ(body->placement().parameters(0).group(), preset == "adamw" ? "scalars" : "matrices");
    EXPECT_EQ(body->placement().parameters(1).group(), "scalars");
    EXPECT_EQ(body->requested().preset(), preset);
  }
}

TEST(PresetsTest, NoGroupsIsTheDefaultPreset) {
  EXPECT_EQ(PresetOf(PresetJob("")), "default");
  EXPECT_EQ(PresetOf(SmallJob()), "");
  const v1::JobDefinition job = Completed("");
  EXPECT_EQ(job.groups(0).lr(), 1e-3);
  EXPECT_EQ(job.groups(1).lr(), 1e-3);
  EXPECT_EQ(job.groups(0).weight_decay(), 0.1);
  EXPECT_EQ(job.max_grad_norm(), 1);
}

TEST(PresetsTest, KellerIsMuonWithAuxAdam) {
  const v1::JobDefinition job = Completed("keller");
  EXPECT_EQ(job.groups(0).lr(), 0.02);
  EXPECT_EQ(job.groups(0).muon().scale(), v1::UPDATE_SCALE_ORIGINAL);
  EXPECT_EQ(job.groups(0).muon().momentum_form(), v1::MOMENTUM_FORM_EMA);
  EXPECT_TRUE(job.groups(0).muon().nesterov());
  EXPECT_EQ(job.groups(0).missing_gradient(), v1::MISSING_GRADIENT_ZERO);
  EXPECT_EQ(job.groups(1).lr(), 3e-4);
  EXPECT_EQ(job.groups(1).adamw().eps(), 1e-10);
}

TEST(PresetsTest, MoonlightSumsItsMomentumAndHasItsEpsUncorrected) {
  const v1::JobDefinition job = Completed("moonlight");
  EXPECT_EQ(job.groups(0).muon().momentum_form(), v1::MOMENTUM_FORM_SUM);
  EXPECT_EQ(job.groups(0).muon().scale(), v1::UPDATE_SCALE_MATCH_RMS_ADAMW);
  EXPECT_EQ(job.groups(0).weight_decay(), 0.1);
  EXPECT_EQ(job.groups(1).adamw().eps_mode(), v1::ADAM_EPS_MODE_UNCORRECTED);
}

TEST(PresetsTest, DionNormsAreUnitRmsWithoutNesterov) {
  const v1::MuonOptions muon = Completed("dion").groups(0).muon();
  EXPECT_EQ(muon.ns_coefficients(), v1::NEWTON_SCHULZ_COEFFICIENTS_POLAR_EXPRESS_5_S102);
  EXPECT_EQ(muon.scale(), v1::UPDATE_SCALE_UNIT_RMS_NORM);
  EXPECT_EQ(muon.momentum_form(), v1::MOMENTUM_FORM_SUM);
  EXPECT_FALSE(muon.nesterov());
}

// [W1]: no decay of vectors, nor of biases of more dimensions.
TEST(PresetsTest, MegatronDecaysNoVectorAndNoBias) {
  v1::JobDefinition job = PresetJob("megatron");
  job.mutable_parameters(1)->set_name("scale");
  *job.add_parameters() = job.parameters(0);
  job.mutable_parameters(2)->set_name("experts.bias");
  const auto body = Resolve(job);
  ASSERT_TRUE(body.ok()) << body.status();
  const v1::MuonOptions& muon = body->definition().groups(0).muon();
  EXPECT_EQ(muon.ns_coefficients(), v1::NEWTON_SCHULZ_COEFFICIENTS_YOU);
  EXPECT_EQ(muon.scale(), v1::UPDATE_SCALE_MAX_DIM);
  EXPECT_FALSE(muon.nesterov());
  EXPECT_EQ(muon.momentum(), 0.9);
  EXPECT_EQ(body->definition().max_grad_norm(), 1);
  EXPECT_EQ(body->placement().parameters(0).weight_decay_multiplier(), 1);
  EXPECT_EQ(body->placement().parameters(1).weight_decay_multiplier(), 0);
  EXPECT_EQ(body->placement().parameters(2).weight_decay_multiplier(), 0);
}

TEST(PresetsTest, ARuleOfTheRequestBeatsThePresets) {
  v1::JobDefinition job = PresetJob("megatron");
  v1::RoutingRule& decay = *job.add_routing_rules();
  decay.set_name("decay-biases");
  decay.set_name_glob("*.bias");
  decay.set_weight_decay_multiplier(0.5);
  const auto body = Resolve(job);
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(body->placement().parameters(1).weight_decay_multiplier(), 0.5);
}

TEST(PresetsTest, WhatIsSetStaysAndTheRestOfAGroupIsFilledByItsRule) {
  v1::JobDefinition job = PresetJob("keller");
  v1::ParameterGroup& mine = *job.add_groups();
  mine.set_name("mine");
  mine.set_rule(v1::RULE_MUON);
  mine.set_lr(0.5);
  mine.mutable_muon()->set_nesterov(false);
  mine.mutable_muon()->set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_DEEPSEEK_V4);
  job.set_matrix_group("mine");
  job.set_max_grad_norm(0);
  const v1::JobDefinition completed = *WithPreset(job);
  ASSERT_EQ(completed.groups_size(), 3);
  const v1::ParameterGroup& group = completed.groups(0);
  EXPECT_EQ(group.name(), "mine");
  EXPECT_EQ(group.lr(), 0.5);
  EXPECT_FALSE(group.muon().nesterov());
  EXPECT_EQ(group.muon().scale(), v1::UPDATE_SCALE_ORIGINAL);
  EXPECT_EQ(group.muon().ns_coefficients(), v1::NEWTON_SCHULZ_COEFFICIENTS_DEEPSEEK_V4);
  EXPECT_EQ(completed.matrix_group(), "mine");
  EXPECT_EQ(completed.scalar_group(), "scalars");
  EXPECT_EQ(completed.max_grad_norm(), 0);
}

TEST(PresetsTest, RefusesAnUnknownOneListingThoseThereAre) {
  const absl::Status status = WithPreset(PresetJob("best")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("must be one of default, keller, moonlight, megatron, dion, adamw"));
}

}  // namespace
}  // namespace kaon::job
