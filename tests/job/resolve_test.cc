#include "job/resolve.h"

#include <gtest/gtest.h>

#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

TEST(ResolveTest, GivesTheDefinitionTheRoutesAndWhatWasAskedFor) {
  const auto body = Resolve(SmallJob());
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_TRUE(body->definition().groups(0).muon().has_momentum());
  EXPECT_EQ(body->placement().parameters_size(), 2);
  EXPECT_EQ(body->requested().parameters_size(), 0);
  EXPECT_FALSE(body->requested().groups(0).has_muon());
}

TEST(ResolveTest, RefusesWhatValidationRefuses) {
  v1::JobDefinition job = SmallJob();
  job.set_world_size(0);
  EXPECT_EQ(Resolve(job).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::job
