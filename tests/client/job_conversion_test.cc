#include "client/job_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(JobConversionTest, PlacesRoutesByParameterId) {
  v1::JobDescription description;
  *description.mutable_definition() = ToProto(SmallJob());
  v1::ParameterPlacement& placement = *description.mutable_placement()->add_parameters();
  placement.set_parameter_id(1);
  placement.set_group("scalars");
  placement.set_shard(3);
  const kaon::JobDescription job = FromProto(description);
  EXPECT_EQ(job.routes[1].shard, 3u);
  EXPECT_EQ(job.routes[1].group, "scalars");
  EXPECT_EQ(job.routes[0].group, "");
}

}  // namespace
}  // namespace kaon::client
