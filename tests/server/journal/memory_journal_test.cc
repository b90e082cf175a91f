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

TEST(MemoryJournalTest, ShowsDecidedRecords) {
  MemoryJournal journal(nullptr);
  EXPECT_EQ(journal.History(1, 10).status().code(), absl::StatusCode::kOutOfRange);
  for (uint64_t position = 1; position <= 3; ++position) journal.Append(Decision(position), [] {});
  const absl::StatusOr<std::vector<v1::StepRecord>> records = journal.History(2, 10);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 2u);
  EXPECT_EQ(records->front().plan().position(), 2u);
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
