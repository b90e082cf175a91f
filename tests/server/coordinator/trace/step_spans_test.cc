#include "server/coordinator/trace/step_spans.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace kaon::coordinator {
namespace {

constexpr uint64_t kMicro = 1000;

v1::StepRecord Record(uint64_t position) {
  v1::StepRecord record;
  record.mutable_plan()->set_job("gpt");
  record.mutable_plan()->set_position(position);
  record.mutable_plan()->mutable_step()->set_step(position - 2);
  record.mutable_plan()->mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  record.mutable_decision()->set_outcome(v1::OUTCOME_SKIP);
  record.mutable_decision()->set_loss(2.5);
  return record;
}

// Two shards with a step each; the second accepts it later and works until later.
v1::StepHistoryResponse History(uint64_t position) {
  v1::StepHistoryResponse history;
  for (uint32_t shard : {0, 1}) {
    v1::ShardPhases& phases = *history.add_phases();
    phases.set_shard(shard);
    v1::StepPhases& step = *phases.add_steps();
    step.set_position(position);
    step.set_accepted_unix_microseconds(1000 + 10 * shard);
    step.set_total_microseconds(500);
    v1::Phase& phase = *step.add_phases();
    phase.set_name("fold");
    phase.set_begin_microseconds(20);
    phase.set_end_microseconds(60);
    phase.set_busy_microseconds(35);
  }
  return history;
}

class StepSpansTest : public ::testing::Test {
 protected:
  std::vector<TraceSpan> Spans(const std::optional<monitor::TraceContext>& parent) {
    return SpansOf(Record(9), History(9).phases(), parent, [this] { return next_ += 2; });
  }

  uint64_t next_ = 100;
};

TEST_F(StepSpansTest, AreTheStepItsShardsAndTheirPhases) {
  const std::vector<TraceSpan> spans = Spans(std::nullopt);
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_EQ(spans[0].name(), "step");
  EXPECT_EQ(spans[0].parent_span_id(), "");
  EXPECT_EQ(spans[0].start_time_unix_nano(), 1000 * kMicro);
  EXPECT_EQ(spans[0].end_time_unix_nano(), 1510 * kMicro);
  EXPECT_EQ(spans[3].name(), "shard 1");
  EXPECT_EQ(spans[3].parent_span_id(), spans[0].span_id());
  EXPECT_EQ(spans[4].name(), "fold");
  EXPECT_EQ(spans[4].parent_span_id(), spans[3].span_id());
  EXPECT_EQ(spans[4].start_time_unix_nano(), 1030 * kMicro);
  EXPECT_EQ(spans[4].end_time_unix_nano(), 1070 * kMicro);
  std::set<std::string> ids;
  for (const TraceSpan& span : spans) {
    EXPECT_EQ(span.trace_id(), spans[0].trace_id());
    EXPECT_EQ(span.trace_id().size(), 16u);
    EXPECT_EQ(span.span_id().size(), 8u);
    ids.insert(span.span_id());
  }
  EXPECT_EQ(ids.size(), spans.size());
}

TEST_F(StepSpansTest, TellTheFactsOfTheStep) {
  std::map<std::string, std::string> facts;
  const std::vector<TraceSpan> spans = Spans(std::nullopt);
  for (const auto& attribute : spans[0].attributes()) {
    facts[attribute.key()] = attribute.value().ShortDebugString();
  }
  EXPECT_EQ(facts["kaon.job"], "string_value: \"gpt\"");
  EXPECT_EQ(facts["kaon.step"], "int_value: 7");
  EXPECT_EQ(facts["kaon.outcome"], "string_value: \"skip\"");
  EXPECT_EQ(facts["kaon.loss"], "double_value: 2.5");
}

TEST_F(StepSpansTest, ArePartOfTheTrainersSpan) {
  const monitor::TraceContext parent = {std::string(16, 't'), std::string(8, 's')};
  const std::vector<TraceSpan> spans = Spans(parent);
  EXPECT_EQ(spans[0].trace_id(), parent.trace_id);
  EXPECT_EQ(spans[0].parent_span_id(), parent.span_id);
}

TEST_F(StepSpansTest, AreNoneOfTheInitialWeights) {
  v1::StepRecord load = Record(9);
  load.mutable_plan()->mutable_step()->set_kind(v1::STEP_KIND_LOAD_WEIGHTS);
  EXPECT_TRUE(SpansOf(load, History(9).phases(), std::nullopt, [] { return 1; }).empty());
}

TEST_F(StepSpansTest, AreNoneWithoutPhases) {
  EXPECT_TRUE(SpansOf(Record(8), History(9).phases(), std::nullopt, [] { return 1; }).empty());
}

}  // namespace
}  // namespace kaon::coordinator
