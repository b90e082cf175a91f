#include "job/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/effective.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

TEST(RoutesTest, SendsMatricesToMuonAndTheRestToTheScalarGroup) {
  const auto routes = RouteParameters(*Effective(SmallJob()));
  ASSERT_TRUE(routes.ok()) << routes.status();
  EXPECT_EQ(routes->parameters(0).group(), "matrices");
  EXPECT_EQ(routes->parameters(0).layout().kind(), v1::MATRIX_LAYOUT_KIND_MATRIX);
  EXPECT_EQ(routes->parameters(1).group(), "scalars");
  EXPECT_FALSE(routes->parameters(1).has_layout());
  EXPECT_EQ(routes->parameters(1).norm_group(), "main");
}

// [T8]
TEST(RoutesTest, GivesAFrozenParameterNoGroup) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_frozen(true);
  const auto routes = RouteParameters(*Effective(job));
  ASSERT_TRUE(routes.ok()) << routes.status();
  EXPECT_EQ(routes->parameters(0).group(), "");
}

}  // namespace
}  // namespace kaon::job
