#include "job/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/resolve.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

using ::testing::HasSubstr;

std::vector<v1::GroupSetting> Settings(std::vector<std::pair<std::string, std::string>> fields) {
  std::vector<v1::GroupSetting> settings;
  for (auto& [field, value] : fields) {
    settings.emplace_back().set_field(field);
    settings.back().set_value(value);
  }
  return settings;
}

v1::RegisterBody Registered() {
  const auto body = Resolve(SmallJob());
  EXPECT_TRUE(body.ok()) << body.status();
  return *body;
}

absl::StatusOr<v1::GroupChangeBody> Change(
    const std::string& group, std::vector<std::pair<std::string, std::string>> fields) {
  return MakeGroupChange(Registered().definition(), group, Settings(std::move(fields)), 7);
}

TEST(SettingsTest, SetsEveryTypeOfField) {
  const auto matrices = Change("matrices", {{"lr", "3e-4"},
                                            {"weight_decay", "0.01"},
                                            {"muon.momentum", "0.9"},
                                            {"muon.nesterov", "false"},
                                            {"muon.ns_steps", "7"},
                                            {"muon.ns_coefficients", "you"},
                                            {"muon.scale", "original"},
                                            {"decay_mode", "palm"},
                                            {"clip_policy", "clip"},
                                            {"missing_gradient", "zero"},
                                            {"schedule.kind", "cosine"},
                                            {"schedule.warmup_steps", "10"},
                                            {"schedule.total_steps", "100"},
                                            {"schedule.final_factor", "0.1"}});
  ASSERT_TRUE(matrices.ok()) << matrices.status();
  const v1::ParameterGroup& group = matrices->groups(0);
  EXPECT_EQ(group.lr(), 3e-4);
  EXPECT_EQ(group.weight_decay(), 0.01);
  EXPECT_EQ(group.muon().momentum(), 0.9);
  EXPECT_FALSE(group.muon().nesterov());
  EXPECT_EQ(group.muon().ns_steps(), 7u);
  EXPECT_EQ(group.muon().ns_coefficients(), v1::NEWTON_SCHULZ_COEFFICIENTS_YOU);
  EXPECT_EQ(group.muon().scale(), v1::UPDATE_SCALE_ORIGINAL);
  EXPECT_EQ(group.decay_mode(), v1::DECAY_MODE_PALM);
  EXPECT_EQ(group.clip_policy(), v1::CLIP_POLICY_CLIP);
  EXPECT_EQ(group.missing_gradient(), v1::MISSING_GRADIENT_ZERO);
  EXPECT_EQ(group.schedule().total_steps(), 100u);
  EXPECT_EQ(matrices->groups(1).SerializeAsString(),
            Registered().definition().groups(1).SerializeAsString());
  EXPECT_TRUE(Change("scalars", {{"adamw.beta1", "0.8"}, {"adamw.eps", "1e-6"}}).ok());
}

// Edge 51: a key that maps to nothing is an error.
TEST(SettingsTest, NamesTheFieldTheValueAndWhatIsAllowed) {
  const struct {
    const char* group;
    const char* field;
    const char* value;
    const char* says;
  } kRefused[] = {
      {"scalars", "lrr", "1", "must be one of lr, weight_decay"},
      {"scalars", "adamw", "1", "not known"},
      {"scalars", "lr.lr", "1", "not known"},
      {"scalars", "", "1", "not known"},
      {"scalars", "lr", "", "lr is \"\", must be a finite number"},
      {"scalars", "lr", "0.1x", "lr is \"0.1x\""},
      {"scalars", "lr", " 1", "must be a finite number"},
      {"scalars", "lr", "nan", "must be a finite number"},
      {"scalars", "lr", "1e999", "must be a finite number"},
      {"scalars", "lr", "-1", "lr is -1, must be 0 .. "},
      {"scalars", "adamw.beta1", "1", "beta1"},
      {"scalars", "muon.momentum", "0.9", "an option of rule muon, the rule of group scalars is"},
      {"matrices", "muon.ns_steps", "0", "ns_steps is 0, must be 1 .. 99"},
      {"matrices", "muon.ns_steps", "5.5", "whole number"},
      {"matrices", "muon.ns_steps", "-1", "whole number"},
      {"matrices", "muon.nesterov", "1", "true or false"},
      {"matrices", "muon.scale", "spectral", "max_dim"},
      {"matrices", "muon.ns_coefficients", "quintic", "jordan"},
  };
  for (const auto& refused : kRefused) {
    const auto change = Change(refused.group, {{refused.field, refused.value}});
    EXPECT_EQ(change.status().code(), absl::StatusCode::kInvalidArgument) << refused.field;
    EXPECT_THAT(change.status().message(), HasSubstr(refused.says)) << refused.field;
  }
  EXPECT_EQ(Change("other", {{"lr", "1"}}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Change("other", {{"lr", "1"}}).status().message(), HasSubstr("matrices, scalars"));
  EXPECT_THAT(Change("scalars", {{"lr", "1"}, {"lr", "2"}}).status().message(),
              HasSubstr("lr is given twice"));
  EXPECT_THAT(Change("scalars", {}).status().message(), HasSubstr("at least 1"));
}

TEST(SettingsTest, RefusesWhatWouldChangeTheState) {
  for (const char* field : {"name", "rule", "norm_group", "momentum_dtype", "muon.momentum_form",
                            "muon.ns_dtype", "muon.newton_schulz.custom"}) {
    const auto change = Change("matrices", {{field, "1"}});
    EXPECT_EQ(change.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(change.status().message(),
                HasSubstr(absl::StrCat(field, " cannot be changed while the job runs: ")));
  }
  EXPECT_THAT(Change("scalars", {{"adamw.amsgrad", "true"}}).status().message(),
              HasSubstr("adamw.amsgrad cannot be changed"));
}

// [G1]: a buffer exists only with momentum.
TEST(SettingsTest, SgdMomentumStaysZeroOrStaysAboveZero) {
  v1::ParameterGroup group;
  group.set_name("plain");
  group.set_rule(v1::RULE_SGD);
  group.mutable_sgd()->set_momentum(0);
  EXPECT_THAT(ApplySettings(group, Settings({{"sgd.momentum", "0.9"}})).status().message(),
              HasSubstr("sgd.momentum is 0.9, must stay 0"));
  group.mutable_sgd()->set_momentum(0.8);
  EXPECT_TRUE(ApplySettings(group, Settings({{"sgd.momentum", "0.9"}})).ok());
  EXPECT_THAT(ApplySettings(group, Settings({{"sgd.momentum", "0"}})).status().message(),
              HasSubstr("must stay above 0"));
}

TEST(SettingsTest, TheNormEpsComesAndGoesWithItsMode) {
  v1::RegisterBody job = Registered();
  auto change = MakeGroupChange(job.definition(), "matrices",
                                Settings({{"muon.newton_schulz.norm_mode", "add_eps"}}), 2);
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_EQ(change->groups(0).muon().newton_schulz().norm_eps(), 1e-7);
  ApplyGroupChange(*change, job);
  change = MakeGroupChange(job.definition(), "matrices",
                           Settings({{"muon.newton_schulz.norm_mode", "scale_invariant"}}), 3);
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_FALSE(change->groups(0).muon().newton_schulz().has_norm_eps());
}

TEST(SettingsTest, TheEntryListsWhatWasSetAndTheJobKeepsTheNewestOfEachField) {
  v1::RegisterBody job = Registered();
  const auto first = MakeGroupChange(job.definition(), "scalars",
                                     Settings({{"weight_decay", "0.5"}, {"lr", "0.25"}}), 4);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->settings_size(), 2);
  EXPECT_EQ(first->settings(0).ShortDebugString(),
            "group: \"scalars\" field: \"lr\" value: \"0.25\" position: 4");
  ApplyGroupChange(*first, job);
  const auto second = MakeGroupChange(job.definition(), "scalars", Settings({{"lr", "0.125"}}), 9);
  ASSERT_TRUE(second.ok()) << second.status();
  ApplyGroupChange(*second, job);
  EXPECT_EQ(job.definition().groups(1).lr(), 0.125);
  EXPECT_EQ(job.definition().groups(1).weight_decay(), 0.5);
  ASSERT_EQ(job.changed_size(), 2);
  EXPECT_EQ(job.changed(0).position(), 9u);
  EXPECT_EQ(job.changed(1).field(), "weight_decay");
  EXPECT_EQ(job.changed(1).position(), 4u);
}

// What a shard must not take from a coordinator of another build.
TEST(SettingsTest, ChecksTheWholeEntry) {
  const v1::JobDefinition job = Registered().definition();
  const auto refused = [&job](void (*break_it)(v1::GroupChangeBody&)) {
    v1::GroupChangeBody change;
    *change.mutable_groups() = job.groups();
    EXPECT_TRUE(CheckGroupChange(job, change).ok());
    break_it(change);
    return std::string(CheckGroupChange(job, change).message());
  };
  using Body = v1::GroupChangeBody;
  EXPECT_THAT(refused([](Body& change) { change.mutable_groups()->RemoveLast(); }),
              HasSubstr("1 groups, must have 2"));
  EXPECT_THAT(refused([](Body& change) { change.mutable_groups()->SwapElements(0, 1); }),
              HasSubstr("name is scalars, must stay matrices"));
  EXPECT_THAT(refused([](Body& change) { change.mutable_groups(0)->set_rule(v1::RULE_LION); }),
              HasSubstr("rule is lion, must stay muon"));
  EXPECT_THAT(refused([](Body& change) { change.mutable_groups(0)->set_norm_group("x"); }),
              HasSubstr("norm_group is x, must stay main"));
  EXPECT_THAT(refused([](Body& change) {
                change.mutable_groups(0)->set_momentum_dtype(v1::STATE_DTYPE_INT8);
              }),
              HasSubstr("momentum_dtype is int8, must stay float32"));
  EXPECT_THAT(
      refused([](Body& change) { change.mutable_groups(1)->mutable_adamw()->set_amsgrad(true); }),
      HasSubstr("adamw.amsgrad"));
  EXPECT_THAT(refused([](Body& change) { change.mutable_groups(1)->mutable_adamw()->clear_eps(); }),
              HasSubstr("not every option is written out"));
  EXPECT_THAT(refused([](Body& change) { change.mutable_groups(1)->set_lr(-1); }),
              HasSubstr("lr is -1"));
}

}  // namespace
}  // namespace kaon::job
