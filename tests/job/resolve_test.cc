#include "job/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/job/form_times.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

using ::testing::HasSubstr;

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

// Which form is the fastest, only shards know.
TEST(ResolveTest, AFormThatShardsChooseNeedsThem) {
  v1::JobDefinition job = WithFastestForm(SmallJob());
  const absl::Status alone = Resolve(job).status();
  EXPECT_EQ(alone.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(alone.message(),
              HasSubstr("group matrices: muon.newton_schulz.form is fastest, must be standard or "
                        "gram"));
  EXPECT_TRUE(CheckJob(job).ok());
  const auto body = Resolve(job, TimesWithGain(2));
  ASSERT_TRUE(body.ok()) << body.status();
  // What was asked for stays what it was: the next one who asks for it asks for this job.
  EXPECT_EQ(body->requested().groups(0).muon().newton_schulz().form(),
            v1::NEWTON_SCHULZ_FORM_FASTEST);
  EXPECT_TRUE(Resolve(body->definition()).ok());
}

TEST(ResolveTest, WhatIsWrongOtherwiseComesFirst) {
  v1::JobDefinition job = WithFastestForm(SmallJob());
  job.set_world_size(0);
  EXPECT_EQ(CheckJob(job).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Resolve(job, FormTimes()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::job
