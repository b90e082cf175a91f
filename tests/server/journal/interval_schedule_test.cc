#include "server/journal/interval_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace kaon::journal {
namespace {

v1::StepRecord Train(uint64_t step) {
  v1::StepRecord record;
  record.mutable_plan()->mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  record.mutable_plan()->mutable_step()->set_step(step);
  return record;
}

TEST(IntervalScheduleTest, PointsAreTheFirstOfATimelineAndMultiplesOfHalfTheInterval) {
  const IntervalSchedule schedule(5);
  for (uint64_t step = 1; step < 20; ++step) {
    EXPECT_EQ(schedule.IsPoint(Train(step)), step % 3 == 0) << step;
  }
  v1::StepRecord record = Train(0);
  record.mutable_plan()->mutable_step()->set_kind(v1::STEP_KIND_LOAD_WEIGHTS);
  record.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
  EXPECT_TRUE(schedule.IsPoint(record));
  // Weights that were refused are none.
  record.mutable_decision()->set_outcome(v1::OUTCOME_SKIP);
  EXPECT_FALSE(schedule.IsPoint(record));
  record.mutable_plan()->mutable_group_change();
  EXPECT_FALSE(schedule.IsPoint(record));
  record.mutable_plan()->mutable_restore();
  EXPECT_TRUE(schedule.IsPoint(record));
  record.mutable_plan()->mutable_rollback();
  EXPECT_TRUE(schedule.IsPoint(record));
}

// One shard: the steps of its snapshots, how many of them are durable, in order, and the newest two
// of those.
struct Shard {
  std::vector<uint64_t> taken;
  size_t durable = 0;

  bool Keeps(uint64_t step) const {
    const size_t first = durable < 2 ? 0 : durable - 2;
    return std::find(taken.begin() + first, taken.begin() + durable, step) !=
           taken.begin() + durable;
  }
};

// Shards write their snapshots at any speed, and commit steps as soon as all may vote. A common
// snapshot always exists, at most K steps back. Writers that never end only delay themselves.
TEST(IntervalScheduleTest, AllShardsAlwaysKeepACommonStepAtMostTheIntervalBack) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    const uint32_t interval = 1 + random() % 9;
    const IntervalSchedule schedule(interval);
    // A restore may begin at any step.
    const uint64_t first = random() % 30;
    std::vector<Shard> shards(1 + random() % 4);
    for (Shard& shard : shards) shard.taken.push_back(first);
    uint64_t step = first;
    uint64_t worst = 0;
    for (int event = 0; event < 300; ++event) {
      Shard& one = shards[random() % shards.size()];
      if (random() % 3 == 0 && one.durable < one.taken.size()) ++one.durable;
      const bool voted = std::all_of(shards.begin(), shards.end(), [&](const Shard& shard) {
        return shard.durable > 0 && schedule.MayVote(step + 1, shard.taken[shard.durable - 1]);
      });
      if (voted) {
        ++step;
        for (Shard& shard : shards) {
          if (schedule.IsPoint(Train(step))) shard.taken.push_back(step);
          // One is written, one waits.
          ASSERT_LE(shard.taken.size() - shard.durable, 2u);
        }
      }
      if (step == first) continue;
      uint64_t common = 0;
      bool found = false;
      for (const uint64_t candidate : shards[0].taken) {
        if (!std::all_of(shards.begin(), shards.end(),
                         [&](const Shard& shard) { return shard.Keeps(candidate); })) {
          continue;
        }
        common = candidate;
        found = true;
      }
      ASSERT_TRUE(found) << "interval " << interval << ", from " << first << ", at " << step;
      ASSERT_LE(step - common, interval);
      worst = std::max(worst, step - common);
    }
    EXPECT_GT(step, first);
  }
}

// A slow writer holds the vote back as late as it can.
TEST(IntervalScheduleTest, AVoteWaitsForTheSnapshotBeforeTheNewestPoint) {
  const IntervalSchedule schedule(4);
  EXPECT_TRUE(schedule.MayVote(3, 0));
  EXPECT_FALSE(schedule.MayVote(4, 0));
  EXPECT_TRUE(schedule.MayVote(4, 2));
  EXPECT_TRUE(schedule.MayVote(5, 2));
  EXPECT_FALSE(schedule.MayVote(6, 2));
  const IntervalSchedule each(1);
  EXPECT_TRUE(each.MayVote(8, 7));
  EXPECT_FALSE(each.MayVote(9, 7));
}

}  // namespace
}  // namespace kaon::journal
