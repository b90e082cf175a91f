#include "server/journal/history.h"

#include <gtest/gtest.h>

#include <string>

namespace kaon::journal {
namespace {

class HistoryTest : public testing::Test {
 protected:
  void AddUpTo(uint64_t position) {
    while (newest_ < position) {
      v1::StepRecord record;
      record.mutable_plan()->set_position(++newest_);
      history_.Add(record);
    }
  }

  History history_;
  uint64_t newest_ = 0;
};

TEST_F(HistoryTest, KeepsTheNewestThousandRecords) {
  AddUpTo(1200);
  const absl::StatusOr<std::vector<v1::StepRecord>> all = history_.Read(0, 5000);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->size(), kMaxHistory);
  EXPECT_EQ(all->front().plan().position(), 201u);
  EXPECT_EQ(all->back().plan().position(), 1200u);
}

TEST_F(HistoryTest, ReturnsTheRangeAskedFor) {
  AddUpTo(10);
  const absl::StatusOr<std::vector<v1::StepRecord>> some = history_.Read(4, 3);
  ASSERT_TRUE(some.ok()) << some.status();
  ASSERT_EQ(some->size(), 3u);
  EXPECT_EQ(some->front().plan().position(), 4u);
}

TEST_F(HistoryTest, LeavesRegistrationsOut) {
  v1::StepRecord record;
  v1::StepPlan& plan = *record.mutable_plan();
  plan.set_position(1);
  plan.mutable_registration()->mutable_definition()->set_name("tiny");
  history_.Add(record);
  plan.set_position(2);
  plan.mutable_restore()->mutable_registration()->mutable_definition()->set_name("tiny");
  plan.mutable_restore()->set_request_id(7);
  history_.Add(record);
  plan.set_position(5);
  plan.mutable_rollback()->mutable_target()->set_position(2);
  *plan.mutable_rollback()->mutable_target()->mutable_registration() = v1::RegisterBody();
  history_.Add(record);
  const auto kept = *history_.Read(0, 10);
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_TRUE(kept[0].plan().has_registration());
  EXPECT_FALSE(kept[0].plan().registration().has_definition());
  EXPECT_FALSE(kept[1].plan().restore().has_registration());
  EXPECT_EQ(kept[1].plan().restore().request_id(), 7u);
  EXPECT_EQ(kept[2].plan().rollback().target().position(), 2u);
  EXPECT_FALSE(kept[2].plan().rollback().target().has_registration());
}

// The history keeps fewer records if they are large (P17).
TEST_F(HistoryTest, KeepsFewerWhereTheyAreLarge) {
  v1::StepRecord record;
  record.mutable_decision()->set_reason(std::string(kMaxHistoryBytes / 8, 'x'));
  for (uint64_t position = 1; position <= 20; ++position) {
    record.mutable_plan()->set_position(position);
    history_.Add(record);
  }
  const auto kept = *history_.Read(0, 100);
  EXPECT_EQ(kept.size(), 7u);
  EXPECT_EQ(kept.back().plan().position(), 20u);
  // A record that is larger than the bound is the only one; removing it makes room.
  record.mutable_decision()->set_reason(std::string(kMaxHistoryBytes + 1, 'x'));
  record.mutable_plan()->set_position(21);
  history_.Add(record);
  EXPECT_EQ(history_.Read(0, 100)->size(), 1u);
  newest_ = 21;
  AddUpTo(25);
  EXPECT_EQ(history_.Read(0, 100)->size(), 4u);
}

TEST_F(HistoryTest, RefusesPositionsItHasNotReached) {
  EXPECT_TRUE(history_.Read(0, 10)->empty());
  EXPECT_EQ(history_.Read(1, 10).status().code(), absl::StatusCode::kOutOfRange);
  AddUpTo(1100);
  EXPECT_EQ(history_.Read(1101, 10).status().message(),
            "history from position 1101 asked for, kept are 101 .. 1100");
}

TEST_F(HistoryTest, GivesTheOldestKeptForThoseItDropped) {
  AddUpTo(1100);
  const absl::StatusOr<std::vector<v1::StepRecord>> kept = history_.Read(100, 10);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->front().plan().position(), 101u);
  EXPECT_EQ(kept->size(), 10u);
}

TEST_F(HistoryTest, ARollbackTakesBackWhatIsAboveItsTarget) {
  AddUpTo(10);
  v1::StepRecord rollback;
  rollback.mutable_plan()->set_position(14);
  rollback.mutable_plan()->mutable_rollback()->mutable_target()->set_position(7);
  history_.Add(rollback);
  const absl::StatusOr<std::vector<v1::StepRecord>> all = history_.Read(6, 10);
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 3u);
  EXPECT_EQ((*all)[1].plan().position(), 7u);
  EXPECT_EQ((*all)[2].plan().position(), 14u);
  // The reader asks for a position within the gap.
  EXPECT_EQ(history_.Read(9, 10)->front().plan().position(), 14u);
  EXPECT_EQ(history_.Read(15, 10).status().code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace kaon::journal
