#include "server/monitor/step_log.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/config/log_facts.h"

namespace kaon::monitor {
namespace {

class StepLogTest : public testing::Test {
 protected:
  std::string Line(uint64_t step, bool applied = true) {
    v1::StepRecord record;
    record.mutable_plan()->mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
    for (int rank = 0; rank < 2; ++rank) record.mutable_plan()->mutable_step()->add_members();
    record.mutable_decision()->set_outcome(applied ? v1::OUTCOME_APPLY : v1::OUTCOME_SKIP);
    if (applied) record.mutable_decision()->set_loss(2.5);
    if (applied) record.mutable_decision()->set_grad_norm(0.5);
    if (!applied) record.mutable_decision()->set_reason("not finite");
    now_ += step_time_;
    return log_.Line(record, absl::StrCat("step ", step), now_);
  }

  absl::Time now_ = absl::UnixEpoch();
  absl::Duration step_time_ = absl::Milliseconds(10);
  StepLog log_;
};

TEST_F(StepLogTest, AHundredThousandStepsHaveALineEveryTenMinutes) {
  std::vector<std::string> lines;
  for (uint64_t step = 1; step <= 100000; ++step) {
    const std::string line = Line(step, step != 25000);
    if (!line.empty()) lines.push_back(line);
  }
  // Those of the skipped one and of the next applied one besides.
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "step 1 applied; loss 2.5; gradient norm 0.5; 2 workers");
  EXPECT_EQ(lines[1],
            "step 25000 skipped: not finite; 24999 steps in 4m9.99s, 100.0 per second, 1 of them "
            "skipped; 2 workers");
  EXPECT_EQ(lines[3],
            "step 85100 applied; 60000 steps in 10m, 100.0 per second, 0 of them skipped; loss "
            "2.5; gradient norm 0.5; 2 workers");
}

TEST_F(StepLogTest, ADayOfStepsHas145Lines) {
  step_time_ = absl::Seconds(1);
  int lines = 0;
  for (uint64_t step = 1; step <= 24 * 60 * 60; ++step) lines += !Line(step).empty();
  EXPECT_LE(lines, 145);
}

// Steps that are applied and skipped by turns are no news each time.
TEST_F(StepLogTest, ByTurnsOnceASecond) {
  step_time_ = absl::Milliseconds(1);
  int lines = 0;
  for (uint64_t step = 1; step <= 10000; ++step) lines += !Line(step, step % 2 == 0).empty();
  EXPECT_LE(lines, 11);
}

TEST_F(StepLogTest, EntriesThatAreNoStepAlwaysHaveOne) {
  Line(1);
  v1::StepRecord change;
  change.mutable_plan()->mutable_group_change();
  change.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(log_.Line(change, "change", now_), "change applied");
}

TEST(NoteEntryTest, LinesHaveTheJobAndItsNewestTrainStep) {
  v1::StepPlan plan;
  plan.set_job("run");
  plan.mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  plan.mutable_step()->set_step(7);
  NoteEntry(plan);
  EXPECT_EQ(config::CurrentLogFacts().job, "run");
  EXPECT_EQ(config::CurrentLogFacts().step, 7u);
  plan.mutable_group_change();
  NoteEntry(plan);
  EXPECT_EQ(config::CurrentLogFacts().step, 7u);
  plan.mutable_job_deletion();
  NoteEntry(plan);
  EXPECT_EQ(config::CurrentLogFacts().job, "");
}

class NoteTraceTest : public testing::Test {
 protected:
  static v1::CoordinatorToShard Plan(uint64_t step, uint64_t round, const std::string& trace_id) {
    v1::CoordinatorToShard message;
    message.mutable_plan()->set_job("traced");
    message.mutable_plan()->set_position(step + 1);
    message.mutable_plan()->set_round(round);
    message.mutable_plan()->mutable_step()->set_step(step);
    message.set_trace_id(trace_id);
    return message;
  }
  static std::string Noted() { return config::CurrentLogFacts().trace_id; }

  const std::string id_ = std::string(16, '\xab');
  const std::string text_ = "abababababababababababababababab";
};

TEST_F(NoteTraceTest, LinesHaveTheTraceOfTheAcceptedPlanUntilTheNextStep) {
  // Another job has no trace.
  NoteEntry(Plan(0, 1, "").plan());
  const v1::CoordinatorToShard first = Plan(1, 2, id_);
  NoteTrace(&first.plan(), first);
  EXPECT_EQ(Noted(), text_);
  // Late or refused.
  for (const auto& [step, round] : {std::pair(1, 1), std::pair(0, 2), std::pair(2, 2)}) {
    NoteTrace(&first.plan(), Plan(step, round, std::string(16, '\1')));
    NoteTrace(nullptr, Plan(step, round, std::string(16, '\1')));
    EXPECT_EQ(Noted(), text_) << step << " " << round;
  }
  NoteEntry(first.plan());
  EXPECT_EQ(Noted(), text_);
  const v1::CoordinatorToShard untraced = Plan(2, 1, "");
  NoteTrace(&untraced.plan(), untraced);
  EXPECT_EQ(Noted(), "");
}

TEST_F(NoteTraceTest, AStepWhosePlanWasMissedHasNoTrace) {
  const v1::CoordinatorToShard first = Plan(1, 1, id_);
  NoteTrace(&first.plan(), first);
  NoteEntry(Plan(2, 1, "").plan());
  EXPECT_EQ(Noted(), "");
}

TEST_F(NoteTraceTest, IgnoresAnIdOfAnotherLength) {
  for (const size_t bytes : {1, 15, 17, 1 << 20}) {
    const v1::CoordinatorToShard message = Plan(bytes, 1, std::string(bytes, 'x'));
    NoteTrace(&message.plan(), message);
    EXPECT_EQ(Noted(), "") << bytes;
  }
}

}  // namespace
}  // namespace kaon::monitor
