#include "server/coordinator/machine/rollbacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace kaon::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Points = std::vector<std::pair<uint64_t, uint64_t>>;

// At a train step of timeline 1, with snapshots of these (position, step).
v1::ShardState StateAt(uint64_t position, uint64_t step, const Points& points, bool restarted) {
  v1::ShardState state;
  state.set_applied_position(position);
  state.set_applied_step(step);
  state.set_timeline(1);
  state.set_config_revision(1);
  state.set_weights_loaded(true);
  state.set_durability(v1::DURABILITY_MODE_INTERVAL);
  state.set_interval_steps(4);
  state.set_rollback_needed(restarted);
  v1::StepPlan& plan = *state.mutable_applied_record()->mutable_plan();
  plan.set_position(position);
  plan.mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  plan.mutable_step()->set_step(step);
  for (const auto& [at, of] : points) {
    v1::SnapshotPoint& point = *state.add_snapshots();
    point.set_position(at);
    point.set_step(of);
    point.mutable_registration()->mutable_definition()->set_name("tiny");
    point.mutable_last_decision()->set_next_loss_scale(static_cast<double>(of) + 1);
  }
  return state;
}

TEST(RollbackChoiceTest, TakesTheNewestStateThatEveryShardHas) {
  const RollbackChoice choice =
      ChooseRollback({StateAt(9, 7, {{4, 2}, {6, 4}}, false), StateAt(6, 4, {{6, 4}, {8, 6}}, true),
                      StateAt(8, 6, {{4, 2}, {6, 4}}, false)});
  ASSERT_TRUE(choice.plan.has_value()) << choice.stop;
  const v1::StepPlan& plan = *choice.plan;
  EXPECT_EQ(plan.job(), "tiny");
  EXPECT_EQ(plan.timeline(), 2u);
  EXPECT_EQ(plan.position(), 10u);
  EXPECT_EQ(plan.rollback().target().position(), 6u);
  EXPECT_EQ(plan.rollback().target().last_decision().next_loss_scale(), 5);
  EXPECT_EQ(plan.rollback().reason(),
            "shard 1 restarted; steps 5 .. 7 are lost, the job goes on from step 4");
}

// Workers and tiers are no part of the state: what was changed of them stays.
TEST(RollbackChoiceTest, KeepsWorkersAndTiersOfTheShardThatHasAppliedMost) {
  v1::ShardState newest = StateAt(9, 7, {{6, 4}}, false);
  newest.mutable_registration()->add_changed()->set_field("world_size");
  for (const char* field : {"lr", "tier"}) {
    v1::GroupSetting& setting = *newest.mutable_registration()->add_changed();
    setting.set_group("muon");
    setting.set_field(field);
  }
  const RollbackChoice choice = ChooseRollback({StateAt(6, 4, {{6, 4}}, true), newest});
  ASSERT_TRUE(choice.plan.has_value());
  ASSERT_EQ(choice.plan->rollback().kept_settings_size(), 2);
  EXPECT_EQ(choice.plan->rollback().kept_settings(0).field(), "world_size");
  EXPECT_EQ(choice.plan->rollback().kept_settings(1).field(), "tier");
}

TEST(RollbackChoiceTest, ItsPositionIsAboveEveryVote) {
  v1::ShardState voted = StateAt(9, 7, {{6, 4}}, false);
  v1::StepPlan held;
  held.set_position(14);
  held.set_timeline(3);
  held.mutable_rollback();
  voted.mutable_prepared()->set_plan(held.SerializeAsString());
  const RollbackChoice choice = ChooseRollback({voted, StateAt(6, 4, {{6, 4}}, true)});
  ASSERT_TRUE(choice.plan.has_value());
  EXPECT_EQ(choice.plan->position(), 15u);
  EXPECT_EQ(choice.plan->timeline(), 4u);
}

TEST(RollbackChoiceTest, TheReasonSaysWhatIsLost) {
  const auto reason = [](const v1::ShardState& one, const v1::ShardState& other) {
    return ChooseRollback({one, other}).plan->rollback().reason();
  };
  EXPECT_EQ(reason(StateAt(6, 4, {{6, 4}}, true), StateAt(6, 4, {{6, 4}}, true)),
            "shard 0, 1 restarted; no step is lost, the job goes on from step 4");
  v1::ShardState changed = StateAt(8, 5, {{6, 4}}, false);
  changed.set_config_revision(7);
  EXPECT_EQ(reason(StateAt(6, 4, {{6, 4}}, true), changed),
            "shard 0 restarted; step 5 is lost, with the hyper-parameters changed since, the job "
            "goes on from step 4");
}

// Alike means byte-equal: the same position of another history is none.
TEST(RollbackChoiceTest, WithoutACommonStateItNamesWhatEachShardHas) {
  v1::ShardState other = StateAt(8, 6, {{4, 2}}, false);
  other.mutable_snapshots(0)->mutable_last_decision()->set_next_loss_scale(9);
  const RollbackChoice choice = ChooseRollback({StateAt(6, 4, {{4, 2}, {6, 4}}, true), other});
  EXPECT_FALSE(choice.plan.has_value());
  EXPECT_EQ(choice.stop.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(choice.stop.message(), HasSubstr("shard 0 has step 2, 4; shard 1 has step 2"));
  EXPECT_THAT(ChooseRollback({StateAt(6, 4, {}, true)}).stop.message(),
              HasSubstr("shard 0 has none"));
}

// Nothing was voted for behind the first entry of a timeline before its snapshot is durable.
TEST(RollbackChoiceTest, WaitsForTheFirstSnapshotOfATimeline) {
  v1::ShardState restored = StateAt(7, 20, {}, false);
  restored.mutable_applied_record()->mutable_plan()->mutable_restore();
  const RollbackChoice choice = ChooseRollback({StateAt(7, 20, {{7, 20}}, true), restored});
  EXPECT_TRUE(choice.stop.ok()) << choice.stop;
  EXPECT_THAT(choice.wait_for, ElementsAre(1));
  v1::ShardState loaded = StateAt(2, 0, {}, false);
  loaded.mutable_applied_record()->mutable_plan()->mutable_step()->set_kind(
      v1::STEP_KIND_LOAD_WEIGHTS);
  EXPECT_THAT(ChooseRollback({loaded, StateAt(2, 0, {{2, 0}}, true)}).wait_for, ElementsAre(0));
}

TEST(RollbackChoiceTest, ShardsOfOneJobHaveOneMode) {
  const v1::ShardState interval = StateAt(6, 4, {}, false);
  EXPECT_TRUE(CheckSameDurability({interval, interval}).ok());
  v1::ShardState journal = interval;
  journal.set_durability(v1::DURABILITY_MODE_JOURNAL);
  journal.set_interval_steps(0);
  const absl::Status status = CheckSameDurability({interval, interval, journal});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "shard 0 has durability interval(4), shard 2 has journal; all shards of a job must "
            "have the same");
  v1::ShardState longer = interval;
  longer.set_interval_steps(5);
  EXPECT_THAT(CheckSameDurability({interval, longer}).message(), HasSubstr("interval(5)"));
}

// Shards 0 and 1 need a rollback; shard 1 was behind the entry when it was read.
TEST(RollbacksTest, ARollbackHelpsTheShardsThatWereBehindIt) {
  std::vector<ShardView> shards(2);
  v1::StepPlan rollback;
  rollback.set_position(8);
  rollback.mutable_rollback();
  for (ShardView& view : shards) view.state.emplace().set_rollback_needed(true);
  shards[0].state->set_applied_position(8);
  shards[1].state->set_applied_position(7);
  v1::StepPlan step;
  step.set_position(8);
  step.mutable_step();
  EXPECT_TRUE(NeedRollbackAfter(step, shards));
  EXPECT_TRUE(shards[1].state->rollback_needed());
  EXPECT_TRUE(NeedRollbackAfter(rollback, shards));
  EXPECT_FALSE(shards[1].state->rollback_needed());
  shards[0].state->set_rollback_needed(false);
  EXPECT_FALSE(NeedRollbackAfter(rollback, shards));
}

}  // namespace
}  // namespace kaon::coordinator
