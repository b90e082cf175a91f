#include "client/wire/record_conversion.h"

#include <gtest/gtest.h>

namespace kaon::client {
namespace {

TEST(RecordConversionTest, HasEveryFieldOfTheDecision) {
  v1::StepRecord record;
  record.mutable_plan()->mutable_step()->set_step(7);
  for (const uint32_t rank : {0, 2}) {
    record.mutable_plan()->mutable_step()->add_members()->set_rank(rank);
  }
  v1::StepDecision& decision = *record.mutable_decision();
  decision.set_outcome(v1::OUTCOME_APPLY);
  decision.set_grad_norm(5);
  decision.set_live_norm(3);
  decision.set_loss(2.5);
  decision.set_next_loss_scale(1024);
  decision.set_applied_updates(6);
  decision.set_state_digest(0xfedc);
  v1::GroupNorm& group = *decision.add_norms();
  group.set_group("muon");
  group.set_norm(4);
  group.set_exempt(true);
  group.set_clip_factor(1);
  v1::NormGroupNorm& norm_group = *decision.add_norm_groups();
  norm_group.set_norm_group("main");
  norm_group.set_norm(5);
  norm_group.set_live_norm(3);
  norm_group.set_clip_factor(0.25);
  const kaon::StepRecord out = ToPublic(record);
  EXPECT_EQ(out.step, 7u);
  EXPECT_TRUE(out.applied);
  EXPECT_EQ(out.ranks, (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(out.grad_norm, 5);
  EXPECT_EQ(out.live_norm, 3);
  EXPECT_EQ(out.loss, 2.5);
  EXPECT_EQ(out.next_loss_scale, 1024);
  EXPECT_EQ(out.applied_updates, 6u);
  EXPECT_EQ(out.state_digest, 0xfedcu);
  ASSERT_EQ(out.norms.size(), 1u);
  EXPECT_EQ(out.norms[0].group, "muon");
  EXPECT_EQ(out.norms[0].norm, 4);
  EXPECT_TRUE(out.norms[0].exempt);
  EXPECT_EQ(out.norms[0].clip_factor, 1);
  ASSERT_EQ(out.norm_groups.size(), 1u);
  EXPECT_EQ(out.norm_groups[0].norm_group, "main");
  EXPECT_EQ(out.norm_groups[0].norm, 5);
  EXPECT_EQ(out.norm_groups[0].live_norm, 3);
  EXPECT_EQ(out.norm_groups[0].clip_factor, 0.25);
}

TEST(RecordConversionTest, SaysWhyAStepWasSkipped) {
  v1::StepRecord record;
  record.mutable_decision()->set_outcome(v1::OUTCOME_SKIP);
  record.mutable_decision()->set_reason("too large");
  const kaon::StepRecord out = ToPublic(record);
  EXPECT_FALSE(out.applied);
  EXPECT_EQ(out.reason, "too large");
  EXPECT_FALSE(out.loss.has_value());
}

// [T3]: absent, for 0 would be the norm of gradients that are 0.
TEST(RecordConversionTest, NormsThatWereNotTakenAreAbsent) {
  v1::StepRecord record;
  record.mutable_decision()->add_norms();
  record.mutable_decision()->add_norm_groups();
  kaon::StepRecord out = ToPublic(record);
  EXPECT_FALSE(out.grad_norm.has_value());
  EXPECT_FALSE(out.live_norm.has_value());
  EXPECT_FALSE(out.norms[0].norm.has_value());
  EXPECT_FALSE(out.norm_groups[0].norm.has_value());
  EXPECT_FALSE(out.norm_groups[0].live_norm.has_value());
  record.mutable_decision()->set_grad_norm(0);
  record.mutable_decision()->mutable_norm_groups(0)->set_live_norm(0);
  out = ToPublic(record);
  EXPECT_EQ(out.grad_norm, 0);
  EXPECT_EQ(out.norm_groups[0].live_norm, 0);
}

}  // namespace
}  // namespace kaon::client
