#include "job/effective_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "job/resolve.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

v1::JobDescription Describe(const v1::JobDefinition& requested) {
  const v1::RegisterBody body = *Resolve(requested);
  v1::JobDescription description;
  *description.mutable_definition() = body.definition();
  *description.mutable_requested() = body.requested();
  return description;
}

// "value, origin", or "" when there is no such value.
std::string Of(const v1::JobDescription& job, const std::string& group, const std::string& field) {
  for (const EffectiveValue& value : EffectiveValues(job)) {
    if (value.group == group && value.field == field) return value.value + ", " + value.origin;
  }
  return "";
}

TEST(OriginsTest, TellsWhatWasSetFromWhatIsADefault) {
  const v1::JobDescription job = Describe(SmallJob());
  EXPECT_EQ(Of(job, "matrices", "lr"), "0.02, set");
  EXPECT_EQ(Of(job, "matrices", "rule"), "muon, set");
  EXPECT_EQ(Of(job, "matrices", "muon.momentum"), "0.95, default");
  EXPECT_EQ(Of(job, "matrices", "muon.newton_schulz.norm_mode"), "scale_invariant, default");
  EXPECT_EQ(Of(job, "scalars", "adamw.amsgrad"), "false, default");
  EXPECT_EQ(Of(job, "", "max_grad_norm"), "1, set");
  EXPECT_EQ(Of(job, "", "clip_scope"), "live, default");
  EXPECT_EQ(Of(job, "", "preset"), "");
}

TEST(OriginsTest, NamesThePresetUnderWhatIsSet) {
  v1::JobDefinition requested = SmallJob();
  requested.set_preset("keller");
  requested.clear_max_grad_norm();
  requested.mutable_groups(0)->clear_lr();
  const v1::JobDescription job = Describe(requested);
  EXPECT_EQ(Of(job, "", "preset"), "keller, set");
  EXPECT_EQ(Of(job, "", "max_grad_norm"), "0, preset keller");
  EXPECT_EQ(Of(job, "matrices", "lr"), "0.02, preset keller");
  EXPECT_EQ(Of(job, "matrices", "muon.scale"), "original, preset keller");
  EXPECT_EQ(Of(job, "matrices", "muon.ns_steps"), "5, default");
  EXPECT_EQ(Of(job, "scalars", "lr"), "0.001, set");
}

TEST(OriginsTest, AJobWithoutGroupsHasTheDefaultPresetsValues) {
  v1::JobDefinition requested = SmallJob();
  requested.clear_groups();
  requested.clear_matrix_group();
  requested.clear_scalar_group();
  const v1::JobDescription job = Describe(requested);
  EXPECT_EQ(Of(job, "", "preset"), "default, default");
  EXPECT_EQ(Of(job, "", "matrix_group"), "matrices, preset default");
  EXPECT_EQ(Of(job, "scalars", "weight_decay"), "0.1, preset default");
}

TEST(OriginsTest, AChangeSinceRegistrationBeatsEverything) {
  v1::JobDescription job = Describe(SmallJob());
  job.mutable_definition()->mutable_groups(0)->set_lr(0.5);
  v1::GroupSetting& setting = *job.add_changed();
  setting.set_group("matrices");
  setting.set_field("lr");
  setting.set_position(12);
  EXPECT_EQ(Of(job, "matrices", "lr"), "0.5, group set at entry 12");
  EXPECT_EQ(Of(job, "scalars", "lr"), "0.001, set");
}

TEST(OriginsTest, RulesNormGroupsAndListsAreOneValueEach) {
  v1::JobDefinition requested = SmallJob();
  v1::RoutingRule& rule = *requested.add_routing_rules();
  rule.set_name("all");
  rule.set_lr_multiplier(0.5);
  requested.add_norm_groups()->set_name("mtp");
  v1::MuonOptions& muon = *requested.mutable_groups(0)->mutable_muon();
  muon.set_ns_steps(8);
  muon.mutable_newton_schulz()->set_form(v1::NEWTON_SCHULZ_FORM_GRAM);
  const v1::JobDescription job = Describe(requested);
  EXPECT_EQ(Of(job, "", "routing_rules.all"), "name: \"all\" lr_multiplier: 0.5, set");
  EXPECT_EQ(Of(job, "", "norm_groups.mtp"), "name: \"mtp\" max_grad_norm: 1, set");
  EXPECT_EQ(Of(job, "matrices", "muon.newton_schulz.gram_restarts"), "[2, 4, 6], default");
}

// Older builds stored requests with form 3, which left the choice to the shards.
TEST(OriginsTest, AStoredFormThatIsNoMoreCountsAsSet) {
  v1::JobDefinition requested = SmallJob();
  v1::NewtonSchulzOptions& options =
      *requested.mutable_groups(0)->mutable_muon()->mutable_newton_schulz();
  options.set_form(v1::NEWTON_SCHULZ_FORM_GRAM);
  v1::JobDescription job = Describe(requested);
  options.set_form(static_cast<v1::NewtonSchulzForm>(3));
  *job.mutable_requested() = requested;
  EXPECT_EQ(Of(job, "matrices", "muon.newton_schulz.form"), "gram, set");
  EXPECT_EQ(Of(job, "matrices", "muon.newton_schulz.gram_restarts"), "[2], set");
}

TEST(OriginsTest, ShowsNumbersThatAreZero) {
  v1::JobDefinition requested = SmallJob();
  v1::Schedule& schedule = *requested.mutable_groups(0)->mutable_schedule();
  schedule.set_kind(v1::SCHEDULE_KIND_COSINE);
  schedule.set_total_steps(10);
  v1::JobDescription job = Describe(requested);
  EXPECT_EQ(Of(job, "matrices", "schedule.final_factor"), "0, default");
  EXPECT_EQ(Of(job, "matrices", "schedule.total_steps"), "10, set");
  v1::GroupSetting& setting = *job.add_changed();
  setting.set_group("matrices");
  setting.set_field("schedule.warmup_steps");
  setting.set_position(3);
  EXPECT_EQ(Of(job, "matrices", "schedule.warmup_steps"), "0, group set at entry 3");
}

// The eps that was asked for went with its mode; the one that is there is none's but the default.
TEST(OriginsTest, ADefaultThatReplacedWhatWasSetIsADefault) {
  v1::JobDefinition requested = SmallJob();
  v1::NewtonSchulzOptions& options =
      *requested.mutable_groups(0)->mutable_muon()->mutable_newton_schulz();
  options.set_norm_mode(v1::NORM_MODE_ADD_EPS);
  options.set_norm_eps(0.5);
  v1::JobDescription job = Describe(requested);
  const std::string kEps = "muon.newton_schulz.norm_eps";
  EXPECT_EQ(Of(job, "matrices", kEps), "0.5, set");
  job.mutable_definition()
      ->mutable_groups(0)
      ->mutable_muon()
      ->mutable_newton_schulz()
      ->set_norm_eps(1e-7);
  EXPECT_EQ(Of(job, "matrices", kEps), "1e-07, default");
}

}  // namespace
}  // namespace kaon::job
