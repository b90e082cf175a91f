#include "tests/crash/told_steps.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/simulation/model.h"

namespace kaon::crash {
namespace {

using simulation::Log;
using simulation::LogKey;
using simulation::Operation;

v1::JobDefinition Job() { return simulation::TinyJob(2); }

void AddStep(Log& log, uint64_t timeline, uint64_t position, uint64_t step) {
  v1::StepPlan& plan = *log[{timeline, position}].mutable_plan();
  plan.set_timeline(timeline);
  plan.set_position(position);
  plan.mutable_step()->set_step(step);
}

void AddRollback(Log& log, uint64_t timeline, uint64_t position, uint64_t step) {
  v1::StepPlan& plan = *log[{timeline, position}].mutable_plan();
  plan.set_timeline(timeline);
  plan.set_position(position);
  plan.mutable_rollback()->mutable_target()->set_step(step);
}

// Registered at position 1, weights loaded at 2.
Log LoadedLog() {
  Log log;
  v1::StepPlan& plan = *log[{1, 1}].mutable_plan();
  plan.set_timeline(1);
  plan.set_position(1);
  plan.mutable_registration();
  AddStep(log, 1, 2, 0);
  return log;
}

void Begin(ClientHistory& history, uint64_t timeline, uint64_t step, uint32_t rank, uint64_t life) {
  Operation operation;
  operation.timeline = timeline;
  operation.step = step;
  operation.rank = rank;
  operation.process_nonce = NonceOf(life, timeline);
  history.operations.push_back(operation);
}

double MeanLoss(uint64_t life_of_0, uint64_t life_of_1) {
  const double sum = TokenWeight(0, life_of_0) * LossOf(0, life_of_0) +
                     TokenWeight(1, life_of_1) * LossOf(1, life_of_1);
  return sum / (TokenWeight(0, life_of_0) + TokenWeight(1, life_of_1));
}

// Gives a record to the client that began last.
void Tell(ClientHistory& history, uint64_t step, double loss) {
  kaon::StepRecord record;
  record.step = step;
  record.applied = true;
  record.ranks = {0, 1};
  record.loss = loss;
  history.told.push_back({history.operations.size() - 1, record, Describe(record)});
}

TEST(ToldStepsTest, MakesAnEntryOfTheLivesThatTookPart) {
  ClientHistory history;
  Begin(history, 1, 1, 1, 2);
  Begin(history, 1, 1, 1, 3);
  Begin(history, 1, 1, 0, 1);
  Tell(history, 1, MeanLoss(1, 3));
  Log log = LoadedLog();
  ASSERT_EQ(AddToldSteps(Job(), history, log), absl::OkStatus());
  const v1::StepPlan& plan = log.at({1, 3}).plan();
  EXPECT_EQ(plan.step().step(), 1u);
  ASSERT_EQ(plan.step().members_size(), 2);
  EXPECT_EQ(plan.step().members(0).process_nonce(), NonceOf(1, 1));
  EXPECT_EQ(plan.step().members(1).process_nonce(), NonceOf(3, 1));
  ExplainTold(log, history);
  EXPECT_EQ(history.operations[2].record, log.at({1, 3}).SerializeAsString());
}

TEST(ToldStepsTest, LeavesAloneWhatTheShardShows) {
  ClientHistory history;
  Begin(history, 1, 1, 0, 1);
  Tell(history, 1, MeanLoss(1, 1));
  Log log = LoadedLog();
  AddStep(log, 1, 3, 1);
  ASSERT_EQ(AddToldSteps(Job(), history, log), absl::OkStatus());
  EXPECT_EQ(log.at({1, 3}).plan().step().members_size(), 0);
}

TEST(ToldStepsTest, RefusesGradientsThatNobodyBegan) {
  ClientHistory history;
  Begin(history, 1, 1, 1, 2);
  Begin(history, 1, 1, 0, 1);
  Tell(history, 1, MeanLoss(2, 1));
  Log log = LoadedLog();
  EXPECT_EQ(AddToldSteps(Job(), history, log).message(),
            "step 1 of timeline 1 was told with gradients that nobody had begun");
}

TEST(ToldStepsTest, RefusesATimelineThatNeverWas) {
  ClientHistory history;
  Begin(history, 2, 1, 1, 2);
  Begin(history, 2, 1, 0, 1);
  Tell(history, 1, MeanLoss(1, 2));
  Log log = LoadedLog();
  EXPECT_EQ(AddToldSteps(Job(), history, log).message(),
            "step 1 of timeline 2 was told, the shard knows of no such timeline");
}

TEST(ToldStepsTest, SaysWhichEntryNobodyWasToldOf) {
  ClientHistory history;
  Begin(history, 2, 3, 1, 2);
  Begin(history, 2, 3, 0, 1);
  Tell(history, 3, MeanLoss(1, 2));
  Log log = LoadedLog();
  AddStep(log, 1, 3, 1);
  AddRollback(log, 2, 7, 1);
  const absl::Status status = AddToldSteps(Job(), history, log);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "entry 8 of timeline 2, before entry 9, is not to be had");
}

TEST(ToldStepsTest, FindsStepsThatWereTakenBack) {
  Log log = LoadedLog();
  for (uint64_t step = 1; step <= 5; ++step) AddStep(log, 1, step + 2, step);
  AddRollback(log, 2, 8, 3);
  AddStep(log, 2, 9, 4);
  AddRollback(log, 3, 10, 3);
  const std::vector<TakenBack> found = *FindTakenBack(log, 2);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].timeline, 1u);
  EXPECT_EQ(found[1].step, 4u);
  EXPECT_EQ(found[2].timeline, 2u);
  EXPECT_EQ(found[2].step, 4u);
  EXPECT_EQ(found[2].next_timeline, 3u);
  EXPECT_EQ(FindTakenBack(log, 1).status().message(),
            "entry 8 of timeline 2 takes back 2 steps, at most 1 may be lost");
}

}  // namespace
}  // namespace kaon::crash
