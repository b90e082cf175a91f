#include "job/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/definition.h"
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
  return MakeGroupChange(Registered(), group, Settings(std::move(fields)), 7);
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
      {"scalars", "lr", "", "lr is \"\", must be a finite decimal number"},
      {"scalars", "lr", "0.1x", "lr is \"0.1x\""},
      {"scalars", "lr", " 1", "must be a finite decimal number"},
      {"scalars", "lr", "nan", "must be a finite decimal number"},
      {"scalars", "lr", "0x1p-3", "lr is \"0x1p-3\", must be a finite decimal number"},
      {"scalars", "lr", "1e-999", "lr is \"1e-999\", must be 0 or at least"},
      {"matrices", "muon.ns_steps", "0x5", "must be a whole number"},
      {"matrices", "muon.ns_steps", "+5", "must be a whole number"},
      {"scalars", "lr", "1e999", "must be a finite decimal number"},
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

// [T1]: fields of the job itself, which no checkpoint brings.
TEST(SettingsTest, SetsTheWorkersOfTheJob) {
  v1::RegisterBody job = Registered();
  const auto set = [&job](std::vector<std::pair<std::string, std::string>> fields) {
    const auto change = MakeGroupChange(job, "", Settings(std::move(fields)), 7);
    if (!change.ok()) return change.status();
    const absl::Status checked = CheckGroupChange(job, *change);
    if (checked.ok()) ApplyGroupChange(*change, job);
    return checked;
  };
  const std::string groups = job.definition().groups(0).SerializeAsString();
  ASSERT_TRUE(set({{"world_size", "4"}, {"worker_loss", "shrink"}}).ok());
  EXPECT_EQ(job.definition().world_size(), 4u);
  EXPECT_EQ(job.definition().worker_loss(), v1::WORKER_LOSS_POLICY_SHRINK);
  // Written out, as another build may have another default.
  EXPECT_EQ(job.definition().worker_loss_seconds(), 60);
  EXPECT_EQ(job.changed_size(), 3);
  EXPECT_EQ(job.changed(1).ShortDebugString(),
            "field: \"worker_loss_seconds\" value: \"60\" position: 7");
  EXPECT_EQ(job.definition().groups(0).SerializeAsString(), groups);
  ASSERT_TRUE(set({{"worker_loss_seconds", "2.5"}, {"worker_loss", "fail"}}).ok());
  EXPECT_EQ(job.definition().worker_loss_seconds(), 2.5);
  // A rollback to the registered job keeps the settings.
  v1::RollbackBody rollback;
  *rollback.mutable_target()->mutable_registration() = Registered();
  *rollback.mutable_kept_settings() = job.changed();
  EXPECT_EQ(RegistrationAfter(rollback).SerializeAsString(), job.SerializeAsString());
  ASSERT_TRUE(set({{"worker_loss", "wait"}}).ok());
  EXPECT_FALSE(job.definition().has_worker_loss_seconds());
  EXPECT_EQ(job.changed_size(), 2);
  const auto refusal = [&set](const std::string& field, const std::string& value) {
    const absl::Status status = set({{field, value}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field << "=" << value;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("world_size", "0"), HasSubstr("world_size is 0, must be 1 .. 4096"));
  EXPECT_THAT(refusal("worker_loss_seconds", "9"), HasSubstr("must be unset"));
  EXPECT_THAT(refusal("worker_loss", "drop"), HasSubstr("worker_loss"));
  EXPECT_THAT(refusal("max_grad_norm", "1"), HasSubstr("one of world_size, worker_loss, worker_l"));
  v1::GroupChangeBody unwritten;
  unwritten.add_settings()->set_field("worker_loss");
  unwritten.mutable_settings(0)->set_value("shrink");
  EXPECT_THAT(CheckGroupChange(job, unwritten).message(), HasSubstr("worker_loss_seconds is 0"));
}

// The operator may bound the steps of a job that runs, and pause it.
TEST(SettingsTest, SetsAndRemovesTheStepDeadlineAndPauses) {
  v1::JobDefinition requested = SmallJob();
  requested.set_worker_loss(v1::WORKER_LOSS_POLICY_SHRINK);
  requested.set_step_seconds(30);
  const v1::RegisterBody registered = *Resolve(requested);
  v1::RegisterBody job = registered;
  const auto set = [&job](std::vector<std::pair<std::string, std::string>> fields) {
    const auto change = MakeGroupChange(job, "", Settings(std::move(fields)), 7);
    if (!change.ok()) return change.status();
    const absl::Status checked = CheckGroupChange(job, *change);
    if (checked.ok()) ApplyGroupChange(*change, job);
    return checked;
  };
  const auto after_rollback = [&job, &registered] {
    v1::RollbackBody rollback;
    *rollback.mutable_target()->mutable_registration() = registered;
    *rollback.mutable_kept_settings() = job.changed();
    EXPECT_TRUE(CheckKeptSettings(rollback).ok());
    return RegistrationAfter(rollback).SerializeAsString();
  };
  ASSERT_TRUE(set({{"step_seconds", "2.5"}, {"paused", "true"}}).ok());
  EXPECT_EQ(job.definition().step_seconds(), 2.5);
  EXPECT_TRUE(job.definition().paused());
  EXPECT_EQ(after_rollback(), job.SerializeAsString());
  ASSERT_TRUE(set({{"paused", "false"}, {"step_seconds", "none"}}).ok());
  EXPECT_FALSE(job.definition().has_step_seconds());
  EXPECT_FALSE(job.definition().paused());
  // The snapshot's job has the bound; it must not come back.
  EXPECT_EQ(after_rollback(), job.SerializeAsString());
  ASSERT_TRUE(set({{"step_seconds", "9"}}).ok());
  ASSERT_TRUE(set({{"worker_loss", "wait"}}).ok());
  EXPECT_FALSE(job.definition().has_step_seconds());
  EXPECT_EQ(set({{"step_seconds", "9"}, {"worker_loss", "wait"}}).message(),
            "step_seconds is 9, must be unset: under worker_loss wait no worker is lost");
  ASSERT_TRUE(set({{"worker_loss", "shrink"}, {"step_seconds", "9"}}).ok());
  EXPECT_EQ(job.definition().step_seconds(), 9);
  EXPECT_THAT(std::string(set({{"step_seconds", "0.5"}}).message()),
              HasSubstr("must be 1 .. 86400"));
  EXPECT_THAT(std::string(set({{"paused", "yes"}}).message()), HasSubstr("must be true or false"));
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
  auto change =
      MakeGroupChange(job, "matrices", Settings({{"muon.newton_schulz.norm_mode", "add_eps"}}), 2);
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_EQ(change->groups(0).muon().newton_schulz().norm_eps(), 1e-7);
  ApplyGroupChange(*change, job);
  change = MakeGroupChange(job, "matrices",
                           Settings({{"muon.newton_schulz.norm_mode", "scale_invariant"}}), 3);
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_FALSE(change->groups(0).muon().newton_schulz().has_norm_eps());
}

TEST(SettingsTest, TheEntryListsWhatWasSetAndTheJobKeepsTheNewestOfEachField) {
  v1::RegisterBody job = Registered();
  const auto first =
      MakeGroupChange(job, "scalars", Settings({{"weight_decay", "0.5"}, {"lr", "0.25"}}), 4);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->settings_size(), 2);
  EXPECT_EQ(first->settings(0).ShortDebugString(),
            "group: \"scalars\" field: \"lr\" value: \"0.25\" position: 4");
  ApplyGroupChange(*first, job);
  const auto second = MakeGroupChange(job, "scalars", Settings({{"lr", "0.125"}}), 9);
  ASSERT_TRUE(second.ok()) << second.status();
  ApplyGroupChange(*second, job);
  EXPECT_EQ(job.definition().groups(1).lr(), 0.125);
  EXPECT_EQ(job.definition().groups(1).weight_decay(), 0.5);
  ASSERT_EQ(job.changed_size(), 2);
  EXPECT_EQ(job.changed(0).position(), 9u);
  EXPECT_EQ(job.changed(1).field(), "weight_decay");
  EXPECT_EQ(job.changed(1).position(), 4u);
}

// A shard must reject these entries from a coordinator of another build.
TEST(SettingsTest, ChecksTheWholeEntry) {
  const v1::RegisterBody job = Registered();
  const auto refused = [&job](void (*break_it)(v1::GroupChangeBody&)) {
    v1::GroupChangeBody change;
    *change.mutable_groups() = job.definition().groups();
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
  // The dtype of Newton-Schulz is fixed at registration ([N6]).
  EXPECT_THAT(
      refused([](Body& change) {
        change.mutable_groups(0)->mutable_muon()->set_ns_dtype(v1::NEWTON_SCHULZ_DTYPE_FLOAT32);
      }),
      HasSubstr("muon.ns_dtype is float32, must stay bfloat16"));
  EXPECT_THAT(refused([](Body& change) {
                v1::MuonOptions& muon = *change.mutable_groups(0)->mutable_muon();
                muon.mutable_newton_schulz()->add_custom()->set_a(1.5);
              }),
              HasSubstr("muon.newton_schulz.custom is {"));
  EXPECT_THAT(refused([](Body& change) { change.mutable_groups(1)->set_lr(3e38); }),
              HasSubstr("parameter h.bias, group scalars: lr 3e+38 * lr_multiplier 1 * 1 / (1 - "
                        "beta1)"));
}

v1::RegisterBody GramJob(uint32_t steps, const std::vector<uint32_t>& restarts) {
  v1::JobDefinition job = SmallJob();
  v1::MuonOptions& muon = *job.mutable_groups(0)->mutable_muon();
  muon.set_ns_steps(steps);
  muon.mutable_newton_schulz()->set_form(v1::NEWTON_SCHULZ_FORM_GRAM);
  for (uint32_t at : restarts) muon.mutable_newton_schulz()->add_gram_restarts(at);
  return *Resolve(job);
}

// The restarts after a change of the Muon group, or the refusal.
std::string RestartsAfter(const v1::RegisterBody& job, const std::string& field,
                          const std::string& value) {
  const auto change = MakeGroupChange(job, "matrices", Settings({{field, value}}), 2);
  if (!change.ok()) return std::string(change.status().message());
  return absl::StrJoin(change->groups(0).muon().newton_schulz().gram_restarts(), ",");
}

// [N7]: lists cannot be set, so that a change must bring the ones it needs.
TEST(SettingsTest, DefaultedRestartsFollowTheFormAndTheSteps) {
  const std::string kForm = "muon.newton_schulz.form";
  EXPECT_EQ(RestartsAfter(GramJob(5, {}), kForm, "standard"), "");
  EXPECT_EQ(RestartsAfter(Registered(), kForm, "gram"), "2");
  EXPECT_EQ(RestartsAfter(GramJob(5, {}), "muon.ns_steps", "8"), "2,4,6");
  EXPECT_EQ(RestartsAfter(GramJob(8, {}), "muon.ns_steps", "5"), "2");
  EXPECT_EQ(RestartsAfter(GramJob(5, {}), "muon.ns_steps", "2"), "");
  EXPECT_EQ(RestartsAfter(GramJob(5, {}), "lr", "0.5"), "2");
  // A user's own restarts stay, and are refused if they do not fit.
  EXPECT_EQ(RestartsAfter(GramJob(6, {1, 3}), "muon.ns_steps", "7"), "1,3");
  EXPECT_THAT(RestartsAfter(GramJob(6, {2, 5}), "muon.ns_steps", "4"), HasSubstr("gram_restarts"));
  EXPECT_EQ(RestartsAfter(GramJob(6, {1, 3}), kForm, "standard"), "");
  // Older builds gave {2, 3} to forms that they chose.
  EXPECT_EQ(RestartsAfter(GramJob(5, {2, 3}), "muon.ns_steps", "8"), "2,4,6");
  EXPECT_EQ(RestartsAfter(GramJob(5, {2, 3}), "lr", "0.5"), "2,3");
  EXPECT_EQ(RestartsAfter(GramJob(5, {2, 3}), "muon.momentum", "0.5"), "2,3");
  for (const std::string form : {"fastest", "x", ""}) {
    EXPECT_THAT(
        RestartsAfter(Registered(), kForm, form),
        HasSubstr("muon.newton_schulz.form is \"" + form + "\", must be one of standard, gram"));
  }
  EXPECT_THAT(RestartsAfter(GramJob(5, {}), "muon.newton_schulz.gram_restarts", "2"),
              HasSubstr("cannot be changed while the job runs"));
}

TEST(SettingsTest, CustomCoefficientsNeitherComeNorGo) {
  v1::JobDefinition job = SmallJob();
  v1::MuonOptions& muon = *job.mutable_groups(0)->mutable_muon();
  muon.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_CUSTOM);
  muon.mutable_newton_schulz()->add_custom()->set_a(1.5);
  EXPECT_THAT(RestartsAfter(*Resolve(job), "muon.ns_coefficients", "jordan"),
              HasSubstr("muon.ns_coefficients is jordan, must stay custom"));
  EXPECT_THAT(RestartsAfter(Registered(), "muon.ns_coefficients", "custom"),
              HasSubstr("muon.ns_coefficients is custom, must stay one of the named sets"));
}

TEST(SettingsTest, RefusesAValueThatIsNoValueButALongText) {
  EXPECT_THAT(Change("scalars", {{"lr", std::string(65, '1')}}).status().message(),
              HasSubstr("lr has a value of 65 bytes, must be 0 .. 64"));
}

// Parameters stay where they are, so the job says the same; hyper-parameters go back.
TEST(SettingsTest, ARollbackKeepsTiers) {
  v1::RegisterBody job = Registered();
  const auto change =
      MakeGroupChange(job, "scalars", Settings({{"tier", "nvme"}, {"lr", "0.5"}}), 7);
  ASSERT_TRUE(change.ok()) << change.status();
  ApplyGroupChange(*change, job);
  v1::RollbackBody rollback;
  *rollback.mutable_target()->mutable_registration() = Registered();
  for (const v1::GroupSetting& setting : job.changed()) {
    if (StaysAtRollback(setting)) *rollback.add_kept_settings() = setting;
  }
  ASSERT_TRUE(CheckKeptSettings(rollback).ok()) << CheckKeptSettings(rollback);
  const v1::RegisterBody after = RegistrationAfter(rollback);
  const int group = GroupIndex(job.definition(), "scalars");
  EXPECT_EQ(after.definition().groups(group).tier(), v1::TIER_NVME);
  EXPECT_EQ(after.definition().groups(group).lr(), Registered().definition().groups(group).lr());
  ASSERT_EQ(after.changed_size(), 1);
  EXPECT_EQ(after.changed(0).field(), "tier");
  for (const char* field : {"lr", "tier"}) {
    v1::RollbackBody wrong = rollback;
    wrong.mutable_kept_settings(0)->set_field(field);
    wrong.mutable_kept_settings(0)->set_value("glacier");
    const absl::Status status = CheckKeptSettings(wrong);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  }
}

TEST(SettingsTest, ASettingThatWentWithItsModeIsForgotten) {
  v1::RegisterBody job = Registered();
  const auto set = [&job](std::vector<std::pair<std::string, std::string>> fields, uint64_t at) {
    const auto change = MakeGroupChange(job, "matrices", Settings(std::move(fields)), at);
    ASSERT_TRUE(change.ok()) << change.status();
    ApplyGroupChange(*change, job);
  };
  const std::string kMode = "muon.newton_schulz.norm_mode";
  set({{kMode, "add_eps"}, {"muon.newton_schulz.norm_eps", "0.5"}}, 4);
  EXPECT_EQ(job.changed_size(), 2);
  set({{kMode, "scale_invariant"}}, 5);
  set({{kMode, "add_eps"}}, 6);
  EXPECT_EQ(job.definition().groups(0).muon().newton_schulz().norm_eps(), 1e-7);
  ASSERT_EQ(job.changed_size(), 1);
  EXPECT_EQ(job.changed(0).field(), kMode);
  set({{"schedule.warmup_steps", "0"}}, 7);
  EXPECT_EQ(job.changed_size(), 2);
}

}  // namespace
}  // namespace kaon::job
