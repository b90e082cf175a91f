#include "job/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "job/resolve.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ValidationError(const v1::JobDefinition& job) {
  const absl::Status status = Resolve(job).status();
  if (status.ok()) return "OK";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(ValidationTest, AcceptsAJobWithMuonAndAdamW) { EXPECT_TRUE(Resolve(SmallJob()).ok()); }

TEST(ValidationTest, RefusesABadJobName) {
  v1::JobDefinition job = SmallJob();
  job.set_name("Not_Allowed");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("Not_Allowed"), HasSubstr("[a-z0-9-]{1,63}")));
}

TEST(ValidationTest, RefusesAWorldSizeOutOfRange) {
  v1::JobDefinition job = SmallJob();
  job.set_world_size(0);
  EXPECT_THAT(ValidationError(job), HasSubstr("world_size is 0, must be 1 .. 4096"));
  job.set_world_size(4097);
  EXPECT_THAT(ValidationError(job), HasSubstr("world_size is 4097"));
}

TEST(ValidationTest, RefusesANormLimitThatIsNotANumber) {
  v1::JobDefinition job = SmallJob();
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

TEST(ValidationTest, RefusesTwoParametersOfOneName) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(1)->set_name("h.weight");
  EXPECT_THAT(ValidationError(job), HasSubstr("parameters[1].name \"h.weight\" is there twice"));
}

TEST(ValidationTest, RefusesAnEmptyDimensionAndTooManyElements) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_shape(1, 0);
  EXPECT_THAT(ValidationError(job), HasSubstr("parameter h.weight: shape[1] is 0"));
  job.mutable_parameters(0)->set_shape(0, uint64_t{1} << 62);
  job.mutable_parameters(0)->set_shape(1, 8);
  EXPECT_THAT(ValidationError(job), HasSubstr("1099511627776 elements in all"));
}

TEST(ValidationTest, RefusesADTypeThatIsNotKnown) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_dtype(static_cast<v1::DType>(9));
  EXPECT_THAT(ValidationError(job), HasSubstr("parameter h.weight: dtype is 9"));
}

TEST(ValidationTest, RefusesAGroupThatDoesNotExist) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_group("elsewhere");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("h.weight"), HasSubstr("elsewhere")));
  job = SmallJob();
  job.set_matrix_group("nowhere");
  EXPECT_THAT(ValidationError(job), HasSubstr("matrix_group is \"nowhere\""));
}

TEST(ValidationTest, RefusesHyperParametersOutOfRangeNamingTheGroup) {
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(1)->mutable_adamw()->set_beta1(1);
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("scalars"), HasSubstr("beta1")));
  job = SmallJob();
  job.mutable_groups(0)->mutable_muon()->set_ns_steps(100);
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("matrices"), HasSubstr("ns_steps is 100")));
  job = SmallJob();
  job.mutable_groups(0)->set_lr(-1);
  EXPECT_THAT(ValidationError(job), HasSubstr("group matrices: lr is -1"));
  job.mutable_groups(0)->set_lr(1e39);
  EXPECT_THAT(ValidationError(job), HasSubstr("group matrices: lr is 1e+39, must be 0 .. "));
}

// Edge 51.
TEST(ValidationTest, RefusesOptionsOfAnotherRule) {
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(1)->mutable_muon();
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: muon is set, but the rule is adamw"));
  job = SmallJob();
  job.mutable_groups(1)->set_rule(v1::RULE_LION);
  job.mutable_groups(1)->mutable_adamw();
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: adamw is set, but the rule is lion"));
  job = SmallJob();
  job.mutable_groups(0)->mutable_sgd();
  EXPECT_THAT(ValidationError(job), HasSubstr("group matrices: sgd is set, but the rule is muon"));
  job = SmallJob();
  job.mutable_groups(1)->set_rule(v1::RULE_SGD);
  job.mutable_groups(1)->mutable_lion();
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: lion is set, but the rule is sgd"));
}

TEST(ValidationTest, TakesSgdAndLionAndNoRuleBeyond) {
  for (const v1::Rule rule : {v1::RULE_SGD, v1::RULE_LION}) {
    v1::JobDefinition job = SmallJob();
    job.mutable_groups(1)->set_rule(rule);
    EXPECT_EQ(ValidationError(job), "OK");
  }
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(1)->set_rule(static_cast<v1::Rule>(5));
  EXPECT_THAT(ValidationError(job), HasSubstr("rule is 5, must be 1 (muon), 2 (adamw), 3 (sgd)"));
  job.mutable_groups(1)->set_rule(v1::RULE_SGD);
  job.mutable_groups(1)->mutable_sgd()->set_nesterov(true);
  EXPECT_THAT(ValidationError(job), HasSubstr("sgd.nesterov: is set, but momentum is 0"));
}

TEST(ValidationTest, RefusesEnumeratorsOfTheFuture) {
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(1)->set_decay_mode(static_cast<v1::DecayMode>(9));
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: decay_mode is 9"));
  job = SmallJob();
  job.mutable_groups(1)->set_momentum_dtype(static_cast<v1::StateDType>(9));
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: momentum_dtype is 9"));
  job = SmallJob();
  job.mutable_groups(1)->mutable_adamw()->set_eps_mode(static_cast<v1::AdamEpsMode>(9));
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: adamw.eps_mode is 9"));
}

TEST(ValidationTest, RefusesMuonForAVector) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(1)->set_group("matrices");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("h.bias"), HasSubstr("matrices")));
}

TEST(ValidationTest, RefusesAFrozenParameterWithAGroup) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_frozen(true);
  job.mutable_parameters(0)->set_group("matrices");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("h.weight"), HasSubstr("frozen")));
}

}  // namespace
}  // namespace kaon::job
