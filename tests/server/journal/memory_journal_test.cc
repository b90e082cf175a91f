#include "server/journal/memory_journal.h"

#include <gtest/gtest.h>

#include <string>

#include "server/journal/incarnation_marker.h"

namespace kaon::journal {
namespace {

DecisionRecord Decision(uint64_t position) {
  DecisionRecord decision;
  decision.record.mutable_plan()->set_position(position);
  return decision;
}

TEST(MemoryJournalTest, CompletesInTheOrderOfAppends) {
  MemoryJournal journal(nullptr);
  std::string completed;
  journal.Append(PromiseRecord(), [&] { completed += 'a'; });
  journal.Append(PrepareRecord(), [&] { completed += 'b'; });
  journal.Append(Decision(1), [&] { completed += 'c'; });
  EXPECT_EQ(completed, "abc");
}

TEST(MemoryJournalTest, KeepsTheNewestThousandRecords) {
  MemoryJournal journal(nullptr);
  for (uint64_t position = 1; position <= 1200; ++position)
    journal.Append(Decision(position), [] {});
  const absl::StatusOr<std::vector<v1::StepRecord>> all = journal.History(0, 5000);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->size(), kMaxHistory);
  EXPECT_EQ(all->front().plan().position(), 201u);
  EXPECT_EQ(all->back().plan().position(), 1200u);
}

TEST(MemoryJournalTest, ReturnsTheRangeAskedFor) {
  MemoryJournal journal(nullptr);
  for (uint64_t position = 1; position <= 10; ++position) journal.Append(Decision(position), [] {});
  const absl::StatusOr<std::vector<v1::StepRecord>> some = journal.History(4, 3);
  ASSERT_TRUE(some.ok()) << some.status();
  ASSERT_EQ(some->size(), 3u);
  EXPECT_EQ(some->front().plan().position(), 4u);
}

TEST(MemoryJournalTest, RefusesPositionsItHasNotReached) {
  MemoryJournal journal(nullptr);
  EXPECT_TRUE(journal.History(0, 10)->empty());
  EXPECT_EQ(journal.History(1, 10).status().code(), absl::StatusCode::kOutOfRange);
  for (uint64_t position = 1; position <= 1100; ++position)
    journal.Append(Decision(position), [] {});
  EXPECT_EQ(journal.History(1101, 10).status().message(),
            "history from position 1101 asked for, kept are 101 .. 1100");
  // Dropped already: the oldest kept ones.
  const absl::StatusOr<std::vector<v1::StepRecord>> kept = journal.History(100, 10);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->front().plan().position(), 101u);
  EXPECT_EQ(kept->size(), 10u);
}

TEST(MemoryJournalTest, MarksTheDirectoryBeforeTheFirstPromiseCompletes) {
  const std::string data_dir = testing::TempDir() + "/memory_journal";
  absl::StatusOr<IncarnationMarker> marker = IncarnationMarker::Open(data_dir);
  ASSERT_TRUE(marker.ok()) << marker.status();
  MemoryJournal journal(&*marker);
  EXPECT_FALSE(IncarnationMarker::Open(data_dir)->held_state());
  bool marked = false;
  journal.Append(PromiseRecord(),
                 [&] { marked = IncarnationMarker::Open(data_dir)->held_state(); });
  EXPECT_TRUE(marked);
}

}  // namespace
}  // namespace kaon::journal
