#include "job/definition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

TEST(DefinitionTest, CountsElements) {
  v1::ParameterSpec parameter;
  EXPECT_EQ(NumElements(parameter), 1u);
  parameter.add_shape(3);
  parameter.add_shape(5);
  EXPECT_EQ(NumElements(parameter), 15u);
}

TEST(DefinitionTest, FindsGroupsByName) {
  const v1::JobDefinition job = SmallJob();
  EXPECT_EQ(GroupIndex(job, "scalars"), 1);
  EXPECT_EQ(GroupIndex(job, "none"), -1);
}

TEST(DefinitionTest, IndicesOfAllGroupsAreThoseOfEach) {
  v1::JobDefinition job;
  job.add_groups()->set_name("a");
  job.add_groups()->set_name("b");
  const auto indices = GroupIndices(job);
  EXPECT_EQ(indices.size(), 2u);
  EXPECT_EQ(indices.at("b"), GroupIndex(job, "b"));
}

}  // namespace
}  // namespace kaon::job
