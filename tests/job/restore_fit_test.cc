#include "job/restore_fit.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "job/resolve.h"
#include "job/settings.h"
#include "job/workers.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

v1::RegisterBody Running() {
  v1::RegisterBody body = Resolve(SmallJob()).value();
  body.mutable_placement()->set_num_shards(2);
  body.mutable_placement()->mutable_parameters(1)->set_shard(1);
  return body;
}

std::string RefusalOf(const std::function<void(v1::RegisterBody&)>& change) {
  v1::RegisterBody restored = Running();
  change(restored);
  const absl::Status status = CheckRestoreFits(Running(), restored);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  return std::string(status.message());
}

TEST(RestoreFitTest, TheSameJobFits) { EXPECT_TRUE(CheckRestoreFits(Running(), Running()).ok()); }

TEST(RestoreFitTest, HyperParametersComeWithTheState) {
  v1::RegisterBody restored = Running();
  restored.mutable_definition()->mutable_groups(1)->set_lr(0.5);
  restored.mutable_changed()->Add()->set_group("scalars");
  EXPECT_TRUE(CheckRestoreFits(Running(), restored).ok());
}

// A checkpoint does not hold the workers, so a restore does not change them.
TEST(RestoreFitTest, WorkersStayThoseOfTheJobThatRuns) {
  v1::RegisterBody restored = Running();
  restored.mutable_definition()->set_world_size(3);
  restored.mutable_definition()->set_worker_loss(v1::WORKER_LOSS_POLICY_FAIL);
  restored.mutable_definition()->set_worker_loss_seconds(5);
  restored.mutable_definition()->set_step_seconds(90);
  restored.mutable_definition()->set_paused(true);
  restored.mutable_changed()->Add()->set_field("world_size");
  EXPECT_TRUE(CheckRestoreFits(Running(), restored).ok());
  KeepWorkers(Running(), restored);
  EXPECT_EQ(restored.SerializeAsString(), Running().SerializeAsString());
}

// State may be restored to another place than it was saved from.
TEST(RestoreFitTest, TiersStayThoseOfTheJobThatRuns) {
  v1::RegisterBody running = Running();
  running.mutable_definition()->mutable_groups(0)->set_tier(v1::TIER_HOST);
  v1::GroupSetting* host = running.add_changed();
  host->set_group(running.definition().groups(0).name());
  host->set_field("tier");
  host->set_value("host");
  v1::RegisterBody restored = Running();
  restored.mutable_definition()->mutable_groups(1)->set_tier(v1::TIER_NVME);
  v1::GroupSetting* nvme = restored.add_changed();
  nvme->set_group(restored.definition().groups(1).name());
  nvme->set_field("tier");
  nvme->set_value("nvme");
  KeepTiers(running, restored);
  EXPECT_TRUE(CheckRestoreFits(running, restored).ok());
  EXPECT_EQ(restored.SerializeAsString(), running.SerializeAsString());
}

TEST(RestoreFitTest, NamesWhatDiffers) {
  EXPECT_NE(RefusalOf([](v1::RegisterBody& body) {
              body.mutable_definition()->mutable_parameters(0)->set_shape(0, 5);
            }).find("parameters[0].shape[0]: 4 -> 5"),
            std::string::npos);
  EXPECT_NE(RefusalOf([](v1::RegisterBody& body) {
              body.mutable_placement()->mutable_parameters(1)->set_shard(0);
            }).find("placement"),
            std::string::npos);
  EXPECT_NE(
      RefusalOf([](v1::RegisterBody& body) {
        body.mutable_definition()->mutable_groups(0)->set_momentum_dtype(v1::STATE_DTYPE_INT8);
      }).find("momentum_dtype"),
      std::string::npos);
}

}  // namespace
}  // namespace kaon::job
