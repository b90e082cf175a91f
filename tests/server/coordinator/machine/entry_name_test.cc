#include "server/coordinator/machine/entry_name.h"

#include <gtest/gtest.h>

namespace kaon::coordinator {
namespace {

TEST(EntryNameTest, TellsAChangeOfAGroupFromOneOfTheJob) {
  v1::StepPlan plan;
  plan.mutable_group_change()->add_settings()->set_field("world_size");
  EXPECT_EQ(NameOfEntry(plan), "change of the job");
  plan.mutable_group_change()->mutable_settings(0)->set_group("muon");
  EXPECT_EQ(NameOfEntry(plan), "change of group muon");
}

TEST(EntryNameTest, ADeletionEndsTheJobForItsWorkers) {
  v1::StepPlan plan;
  plan.set_job("tiny");
  plan.mutable_job_deletion();
  EXPECT_EQ(NameOfEntry(plan), "deletion of job tiny");
  EXPECT_EQ(TimelineIsOver(3, plan), absl::NotFoundError("job \"tiny\" was deleted"));
}

}  // namespace
}  // namespace kaon::coordinator
