#include "client/job_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace kaon::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

std::string ValidationError(const v1::JobDefinition& job) {
  const absl::Status status = ValidateJob(job);
  if (status.ok()) return "OK";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(JobSchemaTest, AcceptsAJobWithMuonAndAdamW) {
  EXPECT_TRUE(ValidateJob(ToProto(SmallJob())).ok());
}

TEST(JobSchemaTest, RoutesMatricesToMuonAndTheRestToTheScalarGroup) {
  const auto routes = RouteParameters(ToProto(SmallJob()));
  ASSERT_TRUE(routes.ok()) << routes.status();
  EXPECT_EQ(routes->at(0).group, "matrices");
  EXPECT_EQ(routes->at(1).group, "scalars");
}

TEST(JobSchemaTest, RoundTripsADefinitionThroughTheWire) {
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

TEST(JobSchemaTest, PlacesRoutesByParameterId) {
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

TEST(JobSchemaTest, FillsUnsetOptionsWithTheDocumentedDefaults) {
  v1::ParameterGroup group;
  group.set_rule(v1::RULE_MUON);
  group.set_weight_decay(0.5);
  v1::ParameterSpec parameter;
  parameter.set_transposed(true);
  const auto muon = std::get<kernels::MuonConfig>(RuleConfigOf(group, parameter));
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_TRUE(muon.nesterov);
  EXPECT_EQ(muon.ns_steps, 5);
  EXPECT_EQ(muon.weight_decay, 0.5);
  EXPECT_TRUE(muon.transposed);
  group.set_rule(v1::RULE_ADAMW);
  const auto adamw = std::get<kernels::AdamWConfig>(RuleConfigOf(group, parameter));
  EXPECT_EQ(adamw.beta2, 0.95);
  EXPECT_EQ(adamw.eps, 1e-8);
}

TEST(JobSchemaTest, KeepsOptionsThatAreSetToTheirZero) {
  v1::ParameterGroup group;
  group.set_rule(v1::RULE_MUON);
  group.mutable_muon()->set_momentum(0);
  group.mutable_muon()->set_nesterov(false);
  const auto muon = std::get<kernels::MuonConfig>(RuleConfigOf(group, v1::ParameterSpec()));
  EXPECT_EQ(muon.momentum, 0);
  EXPECT_FALSE(muon.nesterov);
}

TEST(JobSchemaTest, ExemptsScaleInvariantRulesFromClippingUnlessThePolicySaysOtherwise) {
  v1::ParameterGroup muon;
  muon.set_rule(v1::RULE_MUON);
  EXPECT_TRUE(IsClipExempt(muon));
  muon.set_clip_policy(v1::CLIP_POLICY_CLIP);
  EXPECT_FALSE(IsClipExempt(muon));
  v1::ParameterGroup adamw;
  adamw.set_rule(v1::RULE_ADAMW);
  EXPECT_FALSE(IsClipExempt(adamw));
  adamw.set_clip_policy(v1::CLIP_POLICY_EXEMPT);
  EXPECT_TRUE(IsClipExempt(adamw));
}

TEST(JobSchemaTest, RefusesABadJobName) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.set_name("Not_Allowed");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("Not_Allowed"), HasSubstr("[a-z0-9-]{1,63}")));
}

TEST(JobSchemaTest, RefusesAWorldSizeOutOfRange) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.set_world_size(0);
  EXPECT_THAT(ValidationError(job), HasSubstr("world_size is 0, must be 1 .. 4096"));
  job.set_world_size(4097);
  EXPECT_THAT(ValidationError(job), HasSubstr("world_size is 4097"));
}

TEST(JobSchemaTest, RefusesANormLimitThatIsNotANumber) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.set_max_grad_norm(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(ValidationError(job), HasSubstr("max_grad_norm"));
  job.set_max_grad_norm(1e-320);
  EXPECT_THAT(ValidationError(job), HasSubstr("must be 0 (off) or 1e-30 .. 3.40282e+38"));
  job.set_max_grad_norm(1e39);
  EXPECT_THAT(ValidationError(job), HasSubstr("max_grad_norm is 1e+39"));
  job.set_max_grad_norm(1e-30);
  EXPECT_EQ(ValidationError(job), "OK");
  job.set_max_grad_norm(0);
  EXPECT_EQ(ValidationError(job), "OK");
}

TEST(JobSchemaTest, RefusesTwoParametersOfOneName) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.mutable_parameters(1)->set_name("h.weight");
  EXPECT_THAT(ValidationError(job), HasSubstr("parameters[1].name \"h.weight\" is there twice"));
}

TEST(JobSchemaTest, RefusesAnEmptyDimensionAndTooManyElements) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.mutable_parameters(0)->set_shape(1, 0);
  EXPECT_THAT(ValidationError(job), HasSubstr("parameter h.weight: shape[1] is 0"));
  job.mutable_parameters(0)->set_shape(0, uint64_t{1} << 62);
  job.mutable_parameters(0)->set_shape(1, 8);
  EXPECT_THAT(ValidationError(job), HasSubstr("1099511627776 elements in all"));
}

TEST(JobSchemaTest, RefusesADTypeThatIsNotKnown) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.mutable_parameters(0)->set_dtype(static_cast<v1::DType>(9));
  EXPECT_THAT(ValidationError(job), HasSubstr("parameter h.weight: dtype is 9"));
}

TEST(JobSchemaTest, RefusesAGroupThatDoesNotExist) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.mutable_parameters(0)->set_group("elsewhere");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("h.weight"), HasSubstr("elsewhere")));
  job = ToProto(SmallJob());
  job.set_matrix_group("nowhere");
  EXPECT_THAT(ValidationError(job), HasSubstr("matrix_group is \"nowhere\""));
}

TEST(JobSchemaTest, RefusesHyperParametersOutOfRangeNamingTheGroup) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.mutable_groups(1)->mutable_adamw()->set_beta1(1);
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("scalars"), HasSubstr("beta1")));
  job = ToProto(SmallJob());
  job.mutable_groups(0)->mutable_muon()->set_ns_steps(100);
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("matrices"), HasSubstr("ns_steps is 100")));
  job = ToProto(SmallJob());
  job.mutable_groups(0)->set_lr(-1);
  EXPECT_THAT(ValidationError(job), HasSubstr("group matrices: lr is -1"));
  job.mutable_groups(0)->set_lr(1e39);
  EXPECT_THAT(ValidationError(job), HasSubstr("group matrices: lr is 1e+39, must be 0 .. "));
}

TEST(JobSchemaTest, RefusesOptionsOfAnotherRule) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.mutable_groups(1)->mutable_muon();
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: muon is set, but the rule is adamw"));
}

TEST(JobSchemaTest, RefusesMuonForAVector) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.mutable_parameters(1)->set_group("matrices");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("h.bias"), HasSubstr("matrices")));
}

TEST(JobSchemaTest, RefusesAFrozenParameterWithAGroup) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.mutable_parameters(0)->set_frozen(true);
  job.mutable_parameters(0)->set_group("matrices");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("h.weight"), HasSubstr("frozen")));
}

TEST(JobSchemaTest, GivesAFrozenParameterNoGroup) {
  v1::JobDefinition job = ToProto(SmallJob());
  job.mutable_parameters(0)->set_frozen(true);
  ASSERT_TRUE(ValidateJob(job).ok());
  EXPECT_EQ(RouteParameters(job)->at(0).group, "");
}

TEST(JobSchemaTest, CountsElements) {
  v1::ParameterSpec parameter;
  EXPECT_EQ(NumElements(parameter), 1u);
  parameter.add_shape(3);
  parameter.add_shape(5);
  EXPECT_EQ(NumElements(parameter), 15u);
}

}  // namespace
}  // namespace kaon::client
