#include "client/wire/job_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "job/effective_job.h"
#include "job/presets.h"

namespace kaon::client {
namespace {

kaon::JobDefinition SmallJob() {
  kaon::JobDefinition job;
  job.name = "small";
  job.world_size = 2;
  job.max_grad_norm = 1;
  kaon::ParameterGroup matrices;
  matrices.name = "matrices";
  matrices.rule = Rule::kMuon;
  matrices.lr = 0.02;
  kaon::ParameterGroup scalars;
  scalars.name = "scalars";
  scalars.rule = Rule::kAdamW;
  scalars.lr = 0.001;
  job.groups = {matrices, scalars};
  job.matrix_group = "matrices";
  job.scalar_group = "scalars";
  kaon::ParameterSpec hidden;
  hidden.name = "h.weight";
  hidden.shape = {4, 6};
  kaon::ParameterSpec bias;
  bias.name = "h.bias";
  bias.shape = {6};
  job.parameters = {hidden, bias};
  return job;
}

TEST(JobConversionTest, RoundTripsADefinitionThroughTheWire) {
  kaon::JobDefinition job = SmallJob();
  job.groups[0].muon.nesterov = false;
  job.groups[0].muon.scale = UpdateScale::kOriginal;
  job.groups[1].adamw.beta2 = 0.999;
  job.parameters[0].transposed = true;
  v1::JobDescription description;
  *description.mutable_definition() = ToProto(job);
  const kaon::JobDescription back = FromProto(description);
  EXPECT_EQ(ToProto(back.definition).SerializeAsString(), ToProto(job).SerializeAsString());
  EXPECT_EQ(back.routes.size(), 2u);
}

TEST(JobConversionTest, RoundTripsWhatRoutesAndNormsAParameter) {
  kaon::JobDefinition job = SmallJob();
  job.parameters[0].layout = MatrixLayout{MatrixLayoutKind::kSplitRows, {1, 3}, 0};
  job.parameters[0].norm_group = "mtp";
  job.parameters[0].lr_multiplier = 0;
  job.parameters[0].attributes = {"expert"};
  job.parameters[1].tied_to = "other";
  job.parameters[1].weight_decay_multiplier = 0.5;
  RoutingRule rule;
  rule.name = "experts";
  rule.priority = -3;
  rule.name_glob = "*";
  rule.name_regex = "e$";
  rule.attribute = "expert";
  rule.min_ndim = 0;
  rule.max_elements = 7;
  rule.layout = MatrixLayout{MatrixLayoutKind::kHeads, {}, 4};
  rule.group = "scalars";
  rule.may_match_none = true;
  job.routing_rules = {rule};
  job.norm_groups = {{"mtp", 0.5}, {"free", std::nullopt}};
  job.clip_scope = ClipScope::kAll;
  job.clip_floor = 0.125;
  job.grad_norm_skip_threshold = 9;
  job.report_norms = ReportNorms::kOff;
  job.loss_scaler = LossScaler{1024, true, 2, 10, 3};
  job.worker_loss = WorkerLoss::kShrink;
  job.worker_loss_seconds = 5;
  job.step_seconds = 90;
  job.preset = "keller";
  const v1::JobDefinition wire = ToProto(job);
  EXPECT_TRUE(wire.routing_rules(0).has_min_ndim());
  EXPECT_FALSE(wire.routing_rules(0).has_max_ndim());
  EXPECT_FALSE(wire.norm_groups(1).has_max_grad_norm());
  v1::JobDescription description;
  *description.mutable_definition() = wire;
  EXPECT_EQ(ToProto(FromProto(description).definition).SerializeAsString(),
            wire.SerializeAsString());
}

// A job can be registered again from its description, because every option has a field.
TEST(JobConversionTest, RoundTripsEveryPresetWrittenOut) {
  for (const std::string& preset : job::PresetNames()) {
    kaon::JobDefinition job;
    job.name = "small";
    job.preset = preset;
    v1::JobDescription description;
    *description.mutable_definition() = *job::Effective(ToProto(job));
    EXPECT_EQ(ToProto(FromProto(description).definition).SerializeAsString(),
              description.definition().SerializeAsString())
        << preset;
  }
}

// A worker that attaches to a job sees the options that an admin has changed since its
// registration.
TEST(JobConversionTest, TellsWhatWasChangedSinceRegistration) {
  v1::JobDescription description;
  *description.mutable_definition() = ToProto(SmallJob());
  description.set_config_revision(17);
  v1::GroupSetting& setting = *description.add_changed();
  setting.set_group("matrices");
  setting.set_field("lr");
  setting.set_value("0.01");
  setting.set_position(17);
  const kaon::JobDescription job = FromProto(description);
  EXPECT_EQ(job.config_revision, 17u);
  ASSERT_EQ(job.changed.size(), 1u);
  EXPECT_EQ(job.changed[0].group, "matrices");
  EXPECT_EQ(job.changed[0].field, "lr");
  EXPECT_EQ(job.changed[0].value, "0.01");
  EXPECT_EQ(job.changed[0].position, 17u);
}

}  // namespace
}  // namespace kaon::client
