#include "server/journal/interval_journal.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kaon::journal {
namespace {

// A disk that completes appends when the test says so.
class SlowJournal : public Journal {
 public:
  void Append(Record record, std::function<void()> done) override {
    records.push_back(std::move(record));
    waiting.push_back(std::move(done));
  }
  void AppendGradient(const GradientSlice& slice) override { slices.push_back(slice.position); }
  void WithdrawGradients() override {}
  absl::StatusOr<std::vector<v1::StepRecord>> History(uint64_t from_position,
                                                      uint32_t limit) override {
    return history.Read(from_position, limit);
  }
  void Truncate(uint64_t position) override { truncated_to = position; }
  uint64_t appended_bytes() const override { return 7; }
  v1::JournalStatus Status() const override { return {}; }

  void Complete() {
    for (const auto& done : std::exchange(waiting, {})) done();
  }

  std::vector<Record> records;
  std::vector<std::function<void()>> waiting;
  std::vector<uint64_t> slices;
  class History history;
  uint64_t truncated_to = 0;
};

v1::StepPlan StepAt(uint64_t position, uint64_t step, v1::StepKind kind = v1::STEP_KIND_TRAIN) {
  v1::StepPlan plan;
  plan.set_timeline(1);
  plan.set_position(position);
  plan.mutable_step()->set_kind(kind);
  plan.mutable_step()->set_step(step);
  return plan;
}

v1::StepPlan ChangeAt(uint64_t position) {
  v1::StepPlan plan;
  plan.set_timeline(1);
  plan.set_position(position);
  plan.mutable_group_change();
  return plan;
}

v1::StepPlan RollbackAt(uint64_t position, uint64_t to_position, uint64_t to_step) {
  v1::StepPlan plan;
  plan.set_timeline(2);
  plan.set_position(position);
  plan.mutable_rollback()->mutable_target()->set_position(to_position);
  plan.mutable_rollback()->mutable_target()->set_step(to_step);
  return plan;
}

// Interval 4: points at even steps. Position = step + 2.
class IntervalJournalTest : public testing::Test {
 protected:
  IntervalJournalTest() { Open({}); }

  void Open(const IntervalJournal::Start& start) {
    auto disk = std::make_unique<SlowJournal>();
    disk_ = disk.get();
    for (const v1::StepRecord& record : read_back_) disk->history.Add(record);
    journal_ = std::make_unique<IntervalJournal>(std::move(disk), IntervalSchedule(4), start);
  }
  void OpenLoaded() { Open({1, 0, true}); }
  void Vote(const v1::StepPlan& plan, const std::string& name) {
    PrepareRecord prepare;
    prepare.prepared.set_plan(plan.SerializeAsString());
    journal_->Append(prepare, [this, name] { done_ += name; });
  }
  void Decide(const v1::StepPlan& plan, const std::string& name = "") {
    DecisionRecord decision;
    *decision.record.mutable_plan() = plan;
    decision.record.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
    journal_->Append(decision, [this, name] { done_ += name; });
  }
  std::vector<uint64_t> Positions() {
    std::vector<uint64_t> positions;
    const absl::StatusOr<std::vector<v1::StepRecord>> records = journal_->History(0, 100);
    EXPECT_TRUE(records.ok()) << records.status();
    for (const v1::StepRecord& record : *records) positions.push_back(record.plan().position());
    return positions;
  }

  std::vector<v1::StepRecord> read_back_;
  SlowJournal* disk_ = nullptr;
  std::unique_ptr<IntervalJournal> journal_;
  std::string done_;
};

TEST_F(IntervalJournalTest, WhatAJobIsMadeOfGoesToTheDisk) {
  v1::StepPlan registration;
  registration.set_timeline(1);
  registration.set_position(1);
  registration.mutable_registration();
  journal_->Append(PromiseRecord(), [this] { done_ += 'p'; });
  Vote(registration, "r");
  Decide(registration, "R");
  // Before there are weights a change of groups is in no snapshot either.
  Vote(ChangeAt(2), "g");
  Decide(ChangeAt(2), "G");
  GradientSlice slice;
  slice.position = 3;
  journal_->AppendGradient(slice);
  const v1::StepPlan load = StepAt(3, 0, v1::STEP_KIND_LOAD_WEIGHTS);
  Vote(load, "l");
  Decide(load, "L");
  EXPECT_EQ(disk_->records.size(), 7u);
  EXPECT_EQ(disk_->slices.size(), 1u);
  EXPECT_EQ(done_, "");
  disk_->Complete();
  EXPECT_EQ(done_, "prRgGlL");
  EXPECT_EQ(Positions(), (std::vector<uint64_t>{1, 2, 3}));
}

TEST_F(IntervalJournalTest, StepsAndChangesAreNotWrittenButForTheDecisionsOfPoints) {
  OpenLoaded();
  journal_->OnSnapshot(1, 0);
  for (uint64_t step = 1; step <= 3; ++step) {
    GradientSlice slice;
    slice.position = step + 2;
    journal_->AppendGradient(slice);
    Vote(StepAt(step + 2, step), "v");
    Decide(StepAt(step + 2, step), "d");
    EXPECT_EQ(done_, step == 1 ? "vd" : "vdv");
  }
  ASSERT_EQ(disk_->records.size(), 1u);
  EXPECT_EQ(std::get<DecisionRecord>(disk_->records[0]).record.plan().position(), 4u);
  EXPECT_TRUE(disk_->slices.empty());
  // Callbacks run in the order of appends: an entry without a disk write waits for earlier writes.
  disk_->Complete();
  EXPECT_EQ(done_, "vdvdvd");
  Vote(ChangeAt(6), "g");
  EXPECT_EQ(done_, "vdvdvdg");
  Decide(ChangeAt(6));
  EXPECT_EQ(disk_->records.size(), 1u);
  EXPECT_EQ(Positions(), (std::vector<uint64_t>{3, 4, 5, 6}));
}

TEST_F(IntervalJournalTest, AVoteWaitsForTheSnapshotThatARollbackWouldNeed) {
  OpenLoaded();
  Vote(ChangeAt(3), "g");
  // Even a change of groups waits for the first snapshot, because a restart would not know of it.
  EXPECT_EQ(done_, "");
  journal_->OnSnapshot(1, 0);
  EXPECT_EQ(done_, "g");
  Vote(StepAt(4, 4), "4");
  EXPECT_EQ(done_, "g");
  // A snapshot of another timeline says nothing about this one.
  journal_->OnSnapshot(2, 2);
  EXPECT_EQ(done_, "g");
  journal_->OnSnapshot(1, 2);
  EXPECT_EQ(done_, "g4");
}

TEST_F(IntervalJournalTest, ANewTimelineNeedsASnapshotOfItsOwn) {
  OpenLoaded();
  journal_->OnSnapshot(1, 4);
  const v1::StepPlan rollback = RollbackAt(9, 4, 2);
  Vote(rollback, "b");
  EXPECT_EQ(done_, "");
  disk_->Complete();
  EXPECT_EQ(done_, "b");
  Decide(rollback);
  disk_->Complete();
  EXPECT_EQ(disk_->records.size(), 2u);
  v1::StepPlan next = StepAt(10, 3);
  next.set_timeline(2);
  Vote(next, "3");
  EXPECT_EQ(done_, "b");
  // One that was on its way when the job was rolled back.
  journal_->OnSnapshot(1, 6);
  EXPECT_EQ(done_, "b");
  journal_->OnSnapshot(2, 2);
  EXPECT_EQ(done_, "b3");
}

TEST_F(IntervalJournalTest, ShowsWhatTheDiskWasReadBackWith) {
  for (const uint64_t position : {1, 2, 6}) {
    *read_back_.emplace_back().mutable_plan() = StepAt(position, position);
  }
  OpenLoaded();
  EXPECT_EQ(Positions(), (std::vector<uint64_t>{1, 2, 6}));
  Decide(RollbackAt(9, 2, 0));
  EXPECT_EQ(Positions(), (std::vector<uint64_t>{1, 2, 9}));
  journal_->Truncate(2);
  EXPECT_EQ(disk_->truncated_to, 2u);
  EXPECT_EQ(journal_->appended_bytes(), 7u);
}

}  // namespace
}  // namespace kaon::journal
