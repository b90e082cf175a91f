#include "job/norm_use.h"

#include <gtest/gtest.h>

#include "tests/job/decide_fixture.h"

namespace kaon::job {
namespace {

// layer0.w and layer1.w are exempt, layer0.b and layer1.b live, table frozen.
v1::JobDefinition Quiet() {
  v1::JobDefinition job = coordinator::TestJob();
  job.set_report_norms(v1::REPORT_NORMS_OFF);
  return job;
}

std::vector<bool> Sums(const NormUse& use) {
  std::vector<bool> takes;
  for (const ParameterNormUse& parameter : use.parameters) takes.push_back(parameter.takes_sum);
  return takes;
}

TEST(NormUseTest, SaysWhoIsWhere) {
  v1::JobDefinition job = coordinator::TestJob();
  v1::NormGroup& separate = *job.add_norm_groups();
  separate.set_name("mtp");
  separate.set_max_grad_norm(7);
  job.add_norm_groups()->set_name("other");
  job.mutable_parameters(3)->set_norm_group("mtp");
  const NormUse use = NormUseOf(Register(job, 1));
  ASSERT_EQ(use.norm_groups.size(), 3u);
  EXPECT_EQ(use.norm_groups[0].name, "main");
  EXPECT_EQ(use.norm_groups[1].max_grad_norm, 7);
  EXPECT_EQ(use.norm_groups[2].max_grad_norm, 1);  // The job's.
  EXPECT_EQ(use.exempt, (std::vector<bool>{true, false}));
  EXPECT_TRUE(use.parameters[0].exempt);
  EXPECT_EQ(use.parameters[1].norm_group, 0);
  EXPECT_EQ(use.parameters[3].norm_group, 1);
  EXPECT_EQ(use.parameters[4].group, -1);  // A frozen parameter has no group ([T8]).
  EXPECT_FALSE(use.parameters[4].takes_sum);
}

TEST(NormUseTest, EverySumIsTakenForTheReport) {
  v1::JobDefinition job = coordinator::TestJob();
  job.set_max_grad_norm(0);
  const NormUse use = NormUseOf(Register(job, 1));
  EXPECT_EQ(Sums(use), (std::vector<bool>{true, true, true, true, false}));
  EXPECT_FALSE(use.reads_any);  // [T5]: reported, but nothing is decided by them.
}

// Without a report the shards compute only the norms that a decision reads ([T5]).
TEST(NormUseTest, WithoutAReportOnlyWhatDecidesIsTaken) {
  v1::JobDefinition job = Quiet();
  EXPECT_EQ(Sums(NormUseOf(Register(job, 1))),
            (std::vector<bool>{false, true, false, true, false}));
  job.set_clip_scope(v1::CLIP_SCOPE_ALL);
  EXPECT_EQ(Sums(NormUseOf(Register(job, 1))), (std::vector<bool>{true, true, true, true, false}));
  job.set_max_grad_norm(0);
  NormUse use = NormUseOf(Register(job, 1));
  EXPECT_EQ(Sums(use), std::vector<bool>(5, false));
  EXPECT_FALSE(use.reads_any);
  job.set_grad_norm_skip_threshold(100);
  use = NormUseOf(Register(job, 1));
  EXPECT_EQ(Sums(use), (std::vector<bool>{false, true, false, true, false}));
  EXPECT_TRUE(use.reads_any);
}

// [T5]: a group without parameters does not make a job read norms.
TEST(NormUseTest, AnEmptyLiveGroupReadsNothing) {
  v1::JobDefinition job = Quiet();
  job.clear_parameters();
  coordinator::AddParameter(job, "w", {4, 4});
  job.set_grad_norm_skip_threshold(100);
  const NormUse use = NormUseOf(Register(job, 1));
  EXPECT_FALSE(use.reads_any);
  EXPECT_FALSE(use.parameters[0].takes_sum);
}

// The norm does not count a copy ([C2]); its sum is computed for a report only.
TEST(NormUseTest, NobodyTakesTheSumOfACopyUnlessItIsReported) {
  v1::RegisterBody job = Register(Quiet(), 1);
  job.mutable_placement()->mutable_parameters(3)->set_counted(false);
  EXPECT_EQ(Sums(NormUseOf(job)), (std::vector<bool>{false, true, false, false, false}));
  job.mutable_definition()->set_report_norms(v1::REPORT_NORMS_ON);
  EXPECT_EQ(Sums(NormUseOf(job)), (std::vector<bool>{true, true, true, true, false}));
}

}  // namespace
}  // namespace kaon::job
