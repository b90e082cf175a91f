#include "server/shard/step_phases.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace kaon::shard {
namespace {

constexpr absl::Duration kWallAhead = absl::Hours(9);

class StepPhasesTest : public ::testing::Test {
 protected:
  void After(int64_t microseconds) { now_ += absl::Microseconds(microseconds); }

  void Work(Phase phase, int64_t microseconds) {
    const PhaseTimer timer(&phases_, phase);
    After(microseconds);
  }

  // "receive 1-4:3 fold 4-5:1 of 5", of the newest step.
  std::string Newest() {
    const v1::StepPhases step = phases_.Read(0).back();
    std::string text;
    for (const v1::Phase& phase : step.phases()) {
      absl::StrAppend(&text, phase.name(), " ", phase.begin_microseconds(), "-",
                      phase.end_microseconds(), ":", phase.busy_microseconds(), " ");
    }
    return absl::StrCat(text, "of ", step.total_microseconds());
  }

  absl::Time now_ = absl::UnixEpoch();
  StepPhases phases_{[this] { return now_; }, [this] { return now_ + kWallAhead; }};
};

TEST_F(StepPhasesTest, AddsUpWhatTimersSee) {
  phases_.Begin(3, 1);
  After(10);
  {
    PhaseTimer timer(&phases_, Phase::kReceive);
    After(3);
    timer.Next(Phase::kFold);
    After(5);
  }
  After(100);
  {
    PhaseTimer timer(&phases_, Phase::kReceive);
    After(2);
  }
  EXPECT_EQ(Newest(), "receive 10-120:5 fold 13-18:5 of 120");
}

TEST_F(StepPhasesTest, AnInnerTimerStopsTheOuterOnes) {
  phases_.Begin(3, 1);
  PhaseTimer* innermost = nullptr;
  {
    PhaseTimer outer(&phases_, Phase::kPrepare, &innermost);
    After(10);
    {
      PhaseTimer inner(&phases_, Phase::kJournal, &innermost);
      After(5);
    }
    After(1);
  }
  EXPECT_EQ(innermost, nullptr);
  EXPECT_EQ(Newest(), "prepare 0-16:11 journal 10-15:5 of 16");
}

TEST_F(StepPhasesTest, WhatGoesOnBesideAnotherPhaseIsHidden) {
  phases_.Begin(3, 1);
  After(10);
  {
    PhaseTimer receive(&phases_, Phase::kReceive);
    After(4);
    {
      PhaseTimer prepare(&phases_, Phase::kPrepare);
      After(3);
    }
    // Another worker's gradients: work of two threads, and no phase beside another.
    PhaseTimer other(&phases_, Phase::kReceive);
    After(5);
  }
  // Waiting in between hides nothing and takes nothing back.
  After(100);
  Work(Phase::kApply, 2);
  EXPECT_EQ(Newest(), "receive 10-22:17 prepare 14-17:3 apply 122-124:2 of 124");
  const v1::StepPhases step = phases_.Read(0).back();
  EXPECT_EQ(step.active_microseconds(), 14u);
  EXPECT_EQ(step.phases(0).active_microseconds(), 12u);
  EXPECT_EQ(step.phases(0).hidden_microseconds(), 3u);
  EXPECT_EQ(step.phases(1).active_microseconds(), 3u);
  EXPECT_EQ(step.phases(1).hidden_microseconds(), 3u);
  EXPECT_EQ(step.phases(2).hidden_microseconds(), 0u);
}

TEST_F(StepPhasesTest, AWaitIsNotWorkBesideWhatItWaitsFor) {
  phases_.Begin(3, 1);
  const StepPhases::Work vote = phases_.StartWait(Phase::kJournal);
  After(2);
  {
    PhaseTimer write(&phases_, Phase::kJournal);
    After(3);
    PhaseTimer other(&phases_, Phase::kJournal);
    After(4);
  }
  {
    // Another phase, which is not what it waits for.
    PhaseTimer speculate(&phases_, Phase::kSpeculate);
    After(1);
  }
  After(5);
  phases_.Stop(vote);
  // Two and six alone, three with one thread and four with two at work.
  EXPECT_EQ(Newest(), "journal 0-15:19 speculate 9-10:1 of 15");
  const v1::StepPhases step = phases_.Read(0).back();
  EXPECT_EQ(step.phases(0).active_microseconds(), 15u);
  EXPECT_EQ(step.phases(0).hidden_microseconds(), 1u);
  EXPECT_EQ(step.active_microseconds(), 15u);
}

TEST_F(StepPhasesTest, WorkThatEndsInALaterStepIsOfItsOwn) {
  phases_.Begin(3, 1);
  {
    PhaseTimer pull(&phases_, Phase::kPull, nullptr, 1);
    After(2);
    phases_.Begin(4, 2);
    Work(Phase::kReceive, 5);
  }
  EXPECT_EQ(Newest(), "receive 0-5:5 of 5");
  const std::vector<v1::StepPhases> steps = phases_.Read(0);
  EXPECT_EQ(steps[0].active_microseconds(), 7u);
  EXPECT_EQ(steps[0].phases(0).hidden_microseconds(), 0u);
  EXPECT_EQ(steps[1].phases(0).hidden_microseconds(), 0u);
}

TEST_F(StepPhasesTest, TheDecisionIsWaitedForFromTheDurableVoteOn) {
  phases_.Decided();
  phases_.Begin(3, 1);
  phases_.Decided();
  EXPECT_EQ(Newest(), "of 0");
  Work(Phase::kJournal, 7);
  After(13);
  phases_.Decided();
  EXPECT_EQ(Newest(), "journal 0-7:7 decide 7-20:0 of 20");
}

TEST_F(StepPhasesTest, ALaterRoundOfAStepIsPartOfIt) {
  phases_.Begin(3, 1);
  After(10);
  phases_.Begin(3, 1);
  Work(Phase::kApply, 1);
  EXPECT_EQ(Newest(), "apply 10-11:1 of 11");
  EXPECT_EQ(phases_.Read(0).size(), 1u);
}

TEST_F(StepPhasesTest, ReadersOfThePreviousVersionAreOfItsStep) {
  phases_.Begin(3, 1);
  phases_.Begin(4, 2);
  { PhaseTimer timer(&phases_, Phase::kPull, nullptr, 1); }
  { PhaseTimer timer(&phases_, Phase::kPull, nullptr, 7); }
  EXPECT_EQ(phases_.Read(0)[0].phases_size(), 1);
  EXPECT_EQ(phases_.Read(0)[1].phases_size(), 0);
}

TEST_F(StepPhasesTest, TellsTheTimeOfDayOfThePlan) {
  After(7);
  phases_.Begin(1, 1);
  After(5);
  EXPECT_EQ(phases_.Read(0).back().accepted_unix_microseconds(),
            absl::ToInt64Microseconds(kWallAhead) + 7);
}

TEST_F(StepPhasesTest, KeepsTheNewest) {
  Work(Phase::kApply, 1);
  EXPECT_TRUE(phases_.Read(0).empty());
  for (uint64_t step = 1; step <= 1500; ++step) phases_.Begin(step + 2, step);
  EXPECT_EQ(phases_.Read(0).size(), 1000u);
  EXPECT_EQ(phases_.Read(0).front().step(), 501u);
  EXPECT_EQ(phases_.Read(1500).size(), 3u);
}

TEST_F(StepPhasesTest, WithoutARecorderATimerDoesNothing) {
  PhaseTimer timer(nullptr, Phase::kFold);
  timer.Next(Phase::kApply);
}

}  // namespace
}  // namespace kaon::shard
