#include "server/shard/gradients/gradient_replay.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/server/shard/gradients/accumulator_fixture.h"
#include "tests/server/shard/recorded_journal.h"

namespace kaon::shard {
namespace {

// Covers the errors of an order that no shard appends; LostJournalTest covers the others.
class GradientReplayTest : public AccumulatorFixture {
 protected:
  // Folds a step and keeps its journaled slices.
  GradientReplayTest() {
    Begin();
    PushAll(Open(0), 1);
    PushAll(Open(1), 3);
    facts_ = *accumulator_->FinishSums(1);
    accumulator_->AppendGradient(
        1, [this](const journal::GradientSlice& slice) { journal_.Append(slice); });
    Restart(2 * proto::kMaxChunkBytes);
  }
  absl::Status AddAll(GradientReplay& replay, uint64_t generation, bool keep_sums) {
    for (journal::GradientSlice slice : journal_.All<journal::GradientSlice>()) {
      slice.generation = generation;
      const absl::Status status = replay.Add(slice, keep_sums);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  RecordedJournal journal_;
  v1::Prepared facts_;
};

TEST_F(GradientReplayTest, GivesBackTheGradientThatWasVotedOn) {
  GradientReplay replay(*accumulator_);
  ASSERT_TRUE(AddAll(replay, 1, false).ok());
  const absl::Status status = replay.Complete(plan_, 1, facts_);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Gradient(kW), (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(Gradient(kB), std::vector<float>(4, 2));
}

TEST_F(GradientReplayTest, AWorkerThatComesBackNeedNotSendAnything) {
  GradientReplay replay(*accumulator_);
  ASSERT_TRUE(AddAll(replay, 1, false).ok());
  ASSERT_TRUE(replay.Complete(plan_, 1, facts_).ok());
  const PushingWorker worker = Open(1);
  EXPECT_TRUE(worker.opened.finished());
  ASSERT_EQ(worker.opened.received_size(), 2);
  EXPECT_EQ(worker.opened.received(0).num_elements(), 6u);
  // P2: the contribution counts once, whatever the worker sends.
  EXPECT_TRUE(Push(worker, kW, 0, {9, 9, 9, 9, 9, 9}).ok());
  EXPECT_TRUE(Finish(worker).ok());
  EXPECT_EQ(Gradient(kW), (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_TRUE(folded_.empty());
}

// Rule 8: a finished sum is no prefix that could be kept.
TEST_F(GradientReplayTest, AnotherPlanStartsFromNothing) {
  GradientReplay replay(*accumulator_);
  ASSERT_TRUE(AddAll(replay, 1, false).ok());
  ASSERT_TRUE(replay.Complete(plan_, 1, facts_).ok());
  plan_.set_round(2);
  plan_.mutable_step()->mutable_members(1)->set_token_weight(5);
  accumulator_->BeginFolding(plan_, 2);
  const PushingWorker worker = Open(0);
  EXPECT_FALSE(worker.opened.finished());
  EXPECT_EQ(worker.opened.received_size(), 0);
}

TEST_F(GradientReplayTest, LeavesTheSumsAloneUntilTheVoteOnWhatWaits) {
  GradientReplay replay(*accumulator_);
  ASSERT_TRUE(AddAll(replay, 1, false).ok());
  ASSERT_TRUE(replay.Complete(plan_, 1, facts_).ok());
  accumulator_->RestoreValues(kB, 0, std::vector<float>{42});
  ASSERT_TRUE(AddAll(replay, 2, true).ok());
  EXPECT_EQ(Gradient(kB)[0], 42);
  ASSERT_TRUE(replay.Complete(plan_, 2, facts_).ok());
  EXPECT_EQ(Gradient(kB)[0], 2);
}

// A job that the replay deletes takes its sums with it. Those that wait for a vote end later.
TEST_F(GradientReplayTest, WhatWaitsMayOutliveTheJob) {
  std::optional<GradientReplay> replay(*accumulator_);
  ASSERT_TRUE(AddAll(*replay, 1, true).ok());
  accumulator_->FreeSums();
  ASSERT_TRUE(Reserve(registration_).ok());
  GradientReplay next(*accumulator_);
  ASSERT_TRUE(AddAll(next, 1, false).ok());
  replay.reset();
  const absl::Status status = next.Complete(plan_, 1, facts_);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Gradient(kB), std::vector<float>(4, 2));
}

TEST_F(GradientReplayTest, ForgetsSlicesOfAnEarlierGeneration) {
  GradientReplay replay(*accumulator_);
  ASSERT_TRUE(AddAll(replay, 1, false).ok());
  const absl::Status status = replay.Complete(plan_, 2, facts_);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
}

}  // namespace
}  // namespace kaon::shard
