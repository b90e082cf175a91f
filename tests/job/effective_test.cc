#include "job/effective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

TEST(EffectiveTest, FillsUnsetOptionsWithTheDocumentedDefaults) {
  const v1::JobDefinition job = *Effective(SmallJob());
  const v1::MuonOptions& muon = job.groups(0).muon();
  EXPECT_EQ(muon.momentum(), 0.95);
  EXPECT_TRUE(muon.nesterov());
  EXPECT_EQ(muon.ns_steps(), 5u);
  EXPECT_EQ(muon.scale(), v1::UPDATE_SCALE_MATCH_RMS_ADAMW);
  EXPECT_EQ(job.groups(1).adamw().beta2(), 0.95);
  EXPECT_EQ(job.groups(1).adamw().eps(), 1e-8);
  EXPECT_EQ(job.loss_scaler().initial_scale(), 1);
}

TEST(EffectiveTest, KeepsOptionsThatAreSetToTheirZero) {
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(0)->mutable_muon()->set_momentum(0);
  job.mutable_groups(0)->mutable_muon()->set_nesterov(false);
  const v1::JobDefinition effective = *Effective(job);
  EXPECT_EQ(effective.groups(0).muon().momentum(), 0);
  EXPECT_FALSE(effective.groups(0).muon().nesterov());
}

TEST(EffectiveTest, ChangesNothingTheSecondTime) {
  const v1::JobDefinition once = *Effective(SmallJob());
  EXPECT_EQ(Effective(once)->SerializeAsString(), once.SerializeAsString());
}

TEST(EffectiveTest, RefusesAPresetThatIsNotKnown) {
  v1::JobDefinition job = SmallJob();
  job.set_preset("best");
  const absl::Status status = Effective(job).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("preset is \"best\""));
}

}  // namespace
}  // namespace kaon::job
