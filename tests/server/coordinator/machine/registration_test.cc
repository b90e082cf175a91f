#include "server/coordinator/machine/registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

// [P1]: whole parameters, each on one shard.
TEST(RegistrationTest, RoutesAndPlacesEveryParameter) {
  const auto body = MakeRegistration(TestJob(), {3, 0});
  ASSERT_TRUE(body.ok()) << body.status();
  const v1::Placement& placement = body->placement();
  EXPECT_EQ(placement.num_shards(), 3);
  ASSERT_EQ(placement.parameters_size(), 5);
  EXPECT_EQ(placement.parameters(0).group(), "muon");
  EXPECT_EQ(placement.parameters(1).group(), "adamw");
  EXPECT_EQ(placement.parameters(4).group(), "");
  EXPECT_NE(placement.parameters(0).shard(), placement.parameters(2).shard());
}

TEST(RegistrationTest, RefusesAMalformedDefinitionNamingTheField) {
  v1::JobDefinition job = TestJob();
  job.mutable_groups(0)->set_lr(-1);
  const auto body = MakeRegistration(job, {1, 0});
  EXPECT_EQ(body.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(body.status().message(), HasSubstr("lr"));
}

TEST(RegistrationTest, RefusesAMatrixLargerThanAShard) {
  const auto body = MakeRegistration(TestJob(), {4, 500});
  EXPECT_EQ(body.status().code(), absl::StatusCode::kResourceExhausted);
  // Two weight buffers, an accumulator and the momentum of 32 fp32 elements.
  EXPECT_THAT(body.status().message(), HasSubstr("layer0.w needs 512 bytes"));
}

v1::RegisterBody Registered() { return *MakeRegistration(TestJob(), {1, 0}); }

TEST(RegistrationTest, WrittenOutDefaultsAreNoDifference) {
  v1::JobDefinition written_out = TestJob();
  written_out.mutable_groups(0)->mutable_muon()->set_momentum(0.95);
  EXPECT_EQ(FirstDifference(Registered(), written_out), "");
}

TEST(RegistrationTest, NamesTheFirstDifferenceWithBothValues) {
  v1::JobDefinition other = TestJob();
  other.mutable_groups(1)->set_lr(0.5);
  const std::string difference = FirstDifference(Registered(), other);
  EXPECT_THAT(difference, HasSubstr("groups[1].lr"));
  EXPECT_THAT(difference, HasSubstr("0.001"));
  EXPECT_THAT(difference, HasSubstr("0.5"));
}

TEST(RegistrationTest, ARepeatedComparisonRemembersEqualDefinitionsOnly) {
  RepeatedComparison comparison;
  v1::JobDefinition other = TestJob();
  other.mutable_groups(1)->set_lr(0.5);
  v1::RegisterBody changed = Registered();
  *changed.mutable_requested()->mutable_groups() = other.groups();
  *changed.mutable_definition()->mutable_groups(1) = other.groups(1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(comparison.FirstDifference(Registered(), TestJob()), "");
    EXPECT_THAT(comparison.FirstDifference(Registered(), other), HasSubstr("groups[1].lr"));
    EXPECT_THAT(comparison.FirstDifference(changed, TestJob()), HasSubstr("groups[1].lr"));
  }
}

// Older builds stored requests with form 3, which left the choice to the shards.
TEST(RegistrationTest, AStoredFormThatIsNoMoreMeansTheOneOfTheJob) {
  v1::JobDefinition gram = TestJob();
  v1::NewtonSchulzOptions& options =
      *gram.mutable_groups(0)->mutable_muon()->mutable_newton_schulz();
  options.set_form(v1::NEWTON_SCHULZ_FORM_GRAM);
  options.add_gram_restarts(2);
  options.add_gram_restarts(3);
  v1::RegisterBody stored = *MakeRegistration(gram, {1, 0});
  const auto form_3 = static_cast<v1::NewtonSchulzForm>(3);
  v1::NewtonSchulzOptions& requested =
      *stored.mutable_requested()->mutable_groups(0)->mutable_muon()->mutable_newton_schulz();
  requested.clear_gram_restarts();
  requested.set_form(form_3);
  v1::RegisterBody parsed;
  ASSERT_TRUE(parsed.ParseFromString(stored.SerializeAsString()));
  EXPECT_EQ(parsed.SerializeAsString(), stored.SerializeAsString());
  EXPECT_EQ(FirstDifference(parsed, gram), "");
  EXPECT_EQ(FirstDifference(parsed, parsed.definition()), "");
  EXPECT_THAT(FirstDifference(parsed, TestJob()), HasSubstr("form"));
  options.clear_gram_restarts();
  options.set_form(form_3);
  const absl::Status refused = MakeRegistration(gram, {1, 0}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(),
              HasSubstr("newton_schulz.form is 3, must be one of standard, gram"));
}

// A worker that starts again brings what its program says, not what an admin has changed since.
TEST(RegistrationTest, ChangesSinceAreNoDifference) {
  v1::RegisterBody registered = Registered();
  registered.mutable_definition()->mutable_groups(1)->set_lr(0.5);
  EXPECT_EQ(FirstDifference(registered, TestJob()), "");
  v1::JobDefinition other = TestJob();
  other.mutable_groups(1)->set_lr(0.5);
  EXPECT_THAT(FirstDifference(registered, other), HasSubstr("groups[1].lr"));
}

// Nor does it know whether an admin has paused the job, or has bounded its steps.
TEST(RegistrationTest, WorkersMayBringTheFirstDefinitionOrThePresentOne) {
  v1::JobDefinition first = TestJob();
  first.set_worker_loss(v1::WORKER_LOSS_POLICY_SHRINK);
  v1::RegisterBody registered = *MakeRegistration(first, {1, 0});
  registered.mutable_definition()->set_paused(true);
  registered.mutable_definition()->set_step_seconds(90);
  EXPECT_EQ(FirstDifference(registered, first), "");
  v1::JobDefinition present = first;
  present.set_step_seconds(90);
  EXPECT_EQ(FirstDifference(registered, present), "");
  present.set_step_seconds(91);
  EXPECT_THAT(FirstDifference(registered, present), HasSubstr("step_seconds"));
}

}  // namespace
}  // namespace kaon::coordinator
