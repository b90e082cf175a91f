#include "server/coordinator/page/step_curves.h"

#include <gtest/gtest.h>

namespace kaon::coordinator {
namespace {

v1::StepHistoryResponse Steps(uint64_t first_position, uint64_t first_step, uint64_t count) {
  v1::StepHistoryResponse history;
  for (uint64_t i = 0; i < count; ++i) {
    v1::StepRecord& record = *history.add_records();
    record.mutable_plan()->set_position(first_position + i);
    v1::StepBody& step = *record.mutable_plan()->mutable_step();
    step.set_step(first_step + i);
    step.set_kind(v1::STEP_KIND_TRAIN);
    for (const char* const group : {"a", "b"}) {
      v1::GroupRate& rate = *step.add_rates();
      rate.set_group(group);
      rate.set_learning_rate(0.5);
    }
    record.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
    record.mutable_decision()->set_loss(static_cast<double>(first_position + i));
  }
  return history;
}

TEST(StepCurvesTest, AddsEachStepOnce) {
  StepCurves curves;
  EXPECT_EQ(curves.next_position(), 1u);
  curves.Add(Steps(3, 1, 4));
  curves.Add(Steps(5, 3, 4));
  EXPECT_EQ(curves.next_position(), 9u);
  EXPECT_EQ(curves.newest_step(), 6u);
  const Curves all = *curves.Read(0, UINT64_MAX);
  ASSERT_EQ(all.points.size(), 6u);
  EXPECT_EQ(all.points[5].loss, 8);
  const Curves part = *curves.Read(2, 3);
  ASSERT_EQ(part.points.size(), 2u);
  EXPECT_EQ(part.points[0].step, 2u);
}

TEST(StepCurvesTest, FindsTheGroupOfANormByItsName) {
  v1::StepHistoryResponse history = Steps(1, 1, 1);
  // Norms that are not finite are left out of a skipped step.
  v1::StepDecision& decision = *history.mutable_records(0)->mutable_decision();
  decision.set_outcome(v1::OUTCOME_SKIP);
  decision.set_reason(std::string(1000, 'x'));
  v1::GroupNorm& norm = *decision.add_norms();
  norm.set_group("b");
  norm.set_norm(7);
  norm.set_clip_factor(0.25);
  (*history.mutable_decided_unix_millis())[1] = 99;
  StepCurves curves;
  curves.Add(history);
  const Curves all = *curves.Read(0, UINT64_MAX);
  EXPECT_EQ(all.groups, (std::vector<std::string>{"a", "b"}));
  const StepPoint& point = all.points.at(0);
  EXPECT_TRUE(point.skipped);
  EXPECT_EQ(point.reason.size(), 200u);
  EXPECT_EQ(point.unix_millis, 99);
  EXPECT_EQ(point.groups[0].norm, std::nullopt);
  EXPECT_EQ(point.groups[1].norm, 7);
  EXPECT_EQ(point.groups[1].clip_factor, 0.25);
  EXPECT_EQ(point.groups[0].rate, 0.5);
}

TEST(StepCurvesTest, ForgetsStepsThatTheLogHasAgain) {
  StepCurves curves;
  curves.Add(Steps(1, 1, 10));
  curves.AddRatio("a", "w", 9, 0.1);
  curves.Add(Steps(20, 5, 1));
  EXPECT_EQ(curves.newest_step(), 5u);
  EXPECT_EQ(curves.Read(0, UINT64_MAX)->points.size(), 5u);
  EXPECT_TRUE(curves.Read(0, UINT64_MAX)->ratios[0].points.empty());
  curves.Clear();
  EXPECT_EQ(curves.newest_step(), 0u);
}

// A job is deleted and another one gets its name while no page is open. The values
// of its groups are not those of the first job's.
TEST(StepCurvesTest, ForgetsAJobWithOtherGroups) {
  StepCurves curves;
  curves.Add(Steps(1, 1, 10));
  curves.AddRatio("a", "w", 9, 0.1);
  v1::StepHistoryResponse other = Steps(14, 1, 2);
  for (v1::StepRecord& record : *other.mutable_records()) {
    record.mutable_plan()->mutable_step()->mutable_rates(0)->set_group("c");
    v1::GroupNorm& norm = *record.mutable_decision()->add_norms();
    norm.set_group("c");
    norm.set_norm(7);
  }
  curves.Add(other);
  const Curves all = *curves.Read(0, UINT64_MAX);
  EXPECT_EQ(all.groups, (std::vector<std::string>{"c", "b"}));
  EXPECT_TRUE(all.ratios.empty());
  ASSERT_EQ(all.points.size(), 2u);
  EXPECT_EQ(all.points[1].groups.at(0).norm, 7);
  EXPECT_EQ(curves.next_position(), 16u);
}

TEST(StepCurvesTest, KeepsARatioThatIsAheadOfTheLog) {
  StepCurves curves;
  curves.AddRatio("a", "w", 9, 0.1);
  curves.Add(Steps(1, 1, 10));
  EXPECT_EQ(curves.Read(0, UINT64_MAX)->ratios[0].points.size(), 1u);
}

TEST(StepCurvesTest, BoundsItsMemory) {
  StepCurves curves;
  for (uint64_t i = 0; i < 60; ++i) curves.Add(Steps(1 + 1000 * i, 1 + 1000 * i, 1000));
  for (uint64_t step = 1; step < 5000; ++step) curves.AddRatio("a", "w", step, 1);
  for (int i = 0; i < 30; ++i) curves.AddRatio(std::string(1, 'A' + i), "w", 1, 1);
  const Curves all = *curves.Read(0, UINT64_MAX);
  EXPECT_LE(all.points.size(), StepCurves::kMaxPoints);
  EXPECT_GT(all.points.size(), StepCurves::kMaxPoints / 2);
  EXPECT_EQ(all.points.front().step, 1u);
  EXPECT_EQ(all.points.back().step, 60000u);
  // The newest ones are whole.
  EXPECT_EQ(all.points[all.points.size() - 1000].step, 59001u);
  EXPECT_LE(all.ratios[0].points.size(), StepCurves::kMaxRatios);
  EXPECT_EQ(all.ratios.size(), StepCurves::kMaxGroups);
}

TEST(StepCurvesTest, ReadersOfARangeShareACopyUntilItChanges) {
  StepCurves curves;
  curves.Add(Steps(1, 1, 5));
  const std::shared_ptr<const Curves> all = curves.Read(0, UINT64_MAX);
  EXPECT_EQ(curves.Read(0, UINT64_MAX), all);
  EXPECT_NE(curves.Read(0, 3), all);
  // More ranges than copies are kept.
  for (uint64_t to = 10; to < 20; ++to) EXPECT_EQ(curves.Read(0, to)->points.size(), 5u);
  curves.Add(Steps(6, 6, 1));
  EXPECT_EQ(curves.Read(0, UINT64_MAX)->points.size(), 6u);
  EXPECT_EQ(all->points.size(), 5u);
  curves.AddRatio("a", "w", 6, 0.5);
  EXPECT_EQ(curves.Read(0, UINT64_MAX)->ratios.size(), 1u);
  curves.Clear();
  EXPECT_TRUE(curves.Read(0, UINT64_MAX)->points.empty());
}

}  // namespace
}  // namespace kaon::coordinator
