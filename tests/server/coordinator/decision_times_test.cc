#include "server/coordinator/decision_times.h"

#include <gtest/gtest.h>

namespace kaon::coordinator {
namespace {

TEST(DecisionTimesTest, KeepsTheFirstTimeOfAnEntry) {
  DecisionTimes times;
  times.Note(1, 7, 10);
  times.Note(1, 7, 11);
  EXPECT_EQ(times.Of(1, 7), 10);
  EXPECT_EQ(times.Of(1, 8), 0);
}

TEST(DecisionTimesTest, AnotherTimelineReplacesTheEntry) {
  DecisionTimes times;
  times.Note(1, 7, 10);
  times.Note(2, 7, 12);
  EXPECT_EQ(times.Of(1, 7), 0);
  EXPECT_EQ(times.Of(2, 7), 12);
}

TEST(DecisionTimesTest, ForgetsOldEntries) {
  DecisionTimes times;
  for (uint64_t i = 1; i <= DecisionTimes::kMaxEntries + 1; ++i) times.Note(1, i, i);
  EXPECT_EQ(times.Of(1, 1), 0);
  EXPECT_EQ(times.Of(1, 2), 2);
}

}  // namespace
}  // namespace kaon::coordinator
