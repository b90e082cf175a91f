#include "server/journal/history.h"

#include <gtest/gtest.h>

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
  // From within the gap.
  EXPECT_EQ(history_.Read(9, 10)->front().plan().position(), 14u);
  EXPECT_EQ(history_.Read(15, 10).status().code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace kaon::journal
