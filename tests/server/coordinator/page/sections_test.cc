#include "server/coordinator/page/sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SectionsTest : public testing::Test {
 protected:
  SectionsTest() {
    v1::GetStatusResponse& status = data_.status;
    status.set_holder(true);
    status.set_phase("step 8 <of> rank 1");
    status.set_applied_step(7);
    for (int i = 0; i < 2; ++i) {
      v1::ShardStatus& shard = *status.add_shards();
      shard.set_shard(i);
      shard.set_connected(true);
      shard.mutable_description()->set_used_bytes(95);
      shard.mutable_description()->set_capacity_bytes(100);
      v1::TierStatus& tier = *shard.mutable_description()->add_tiers();
      tier.set_name("nvme");
      tier.set_path("/disk");
      tier.set_waited_seconds(2);
    }
  }

  std::string Html(const std::string& id) {
    for (const Section& section : Sections(data_, curves_)) {
      if (section.id == id) return section.html;
    }
    return "none";
  }

  PageFacts data_;
  Curves curves_;
};

TEST_F(SectionsTest, SummarizesAndEscapes) {
  for (uint64_t step = 6; step <= 7; ++step) {
    v1::StepRecord& record = *data_.newest.add_records();
    record.mutable_plan()->set_position(step + 2);
    record.mutable_plan()->mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
    record.mutable_plan()->mutable_step()->set_step(step);
    record.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
    record.mutable_decision()->set_loss(0.25 * static_cast<double>(step));
    (*data_.newest.mutable_decided_unix_millis())[step + 2] = static_cast<int64_t>(500 * step);
  }
  // The reader looks at older steps.
  curves_.points.resize(2);
  curves_.points[0].step = 1;
  curves_.points[0].unix_millis = 1000;
  curves_.points[0].skipped = true;
  curves_.points[1].step = 2;
  curves_.points[1].unix_millis = 1100;
  curves_.points[1].loss = 9;
  const std::string html = Html("summary");
  EXPECT_THAT(html, HasSubstr("serving</span> step 8 &lt;of&gt; rank 1"));
  EXPECT_THAT(html, HasSubstr("<dt>Loss</dt><dd>1.75</dd>"));
  EXPECT_THAT(html, HasSubstr("<dt>Steps / s</dt><dd>2</dd>"));
  EXPECT_THAT(html, HasSubstr("<dt>Skipped, of those shown</dt><dd>1</dd>"));
}

TEST_F(SectionsTest, SaysThatAShardIsDown) {
  v1::ShardStatus& shard = *data_.status.mutable_shards(1);
  shard.set_connected(false);
  shard.clear_description();
  shard.set_problem("UNAVAILABLE: <gone>");
  EXPECT_THAT(Html("summary"), HasSubstr("a shard has a problem"));
  const std::string html = Html("shards");
  EXPECT_THAT(html, HasSubstr("down</span><br><small>UNAVAILABLE: &lt;gone&gt;</small>"));
  // It comes first.
  EXPECT_LT(html.find("down"), html.find("up</span>"));
}

TEST_F(SectionsTest, SaysThatNobodyAnswers) {
  data_.problem = absl::UnavailableError("stopping");
  EXPECT_THAT(Html("summary"), HasSubstr("no answer</span> UNAVAILABLE: stopping"));
}

TEST_F(SectionsTest, ShowsMemoryAndTiers) {
  EXPECT_THAT(Html("shards"), HasSubstr("95 B of 100 B"));
  EXPECT_THAT(Html("shards"), HasSubstr("class=\"full\" width=\"95\""));
  EXPECT_THAT(Html("tiers"), HasSubstr("nvme</td>"));
}

TEST_F(SectionsTest, ShowsTheLagOfWorkers) {
  for (const uint64_t begun : {8, 7, 0}) {
    v1::WorkerStatus& worker = *data_.status.add_workers();
    worker.set_rank(data_.status.workers_size() - 1);
    worker.set_begun_step(begun);
  }
  const std::string html = Html("workers");
  EXPECT_THAT(html, HasSubstr("<td>none</td>"));
  EXPECT_THAT(html, HasSubstr("<td>1 step</td>"));
  EXPECT_LT(html.find("has not begun"), html.find("<td>none</td>"));
  data_.status.set_holder(false);
  EXPECT_THAT(Html("workers"), HasSubstr("Only the holder"));
}

TEST_F(SectionsTest, BoundsItsTables) {
  for (int i = 0; i < 4096; ++i) data_.status.add_workers()->set_rank(i);
  for (int i = 0; i < 1000; ++i) *data_.status.add_shards() = data_.status.shards(0);
  EXPECT_THAT(Html("workers"), HasSubstr("100 of 4096 are shown"));
  size_t bytes = 0;
  for (const Section& section : Sections(data_, curves_)) bytes += section.html.size();
  EXPECT_LT(bytes, 150u << 10);
}

TEST_F(SectionsTest, ShowsPhasesOfFinishedSteps) {
  v1::ShardPhases& shard = *data_.newest.add_phases();
  for (int i = 0; i < 3; ++i) {
    v1::StepPhases& step = *shard.add_steps();
    step.set_total_microseconds(4000);
    step.set_active_microseconds(3500);
    v1::Phase& phase = *step.add_phases();
    phase.set_name("apply");
    // The newest one is open.
    phase.set_busy_microseconds(i == 2 ? 900000 : 3000);
    phase.set_hidden_microseconds(1000);
  }
  EXPECT_THAT(Html("phases"), HasSubstr(">3.0 ms (1.0 ms)</td>"));
  EXPECT_THAT(Html("phases"), HasSubstr(">500 \u00b5s</td>"));
}

TEST_F(SectionsTest, ListsEntriesThatAreNoAppliedStep) {
  v1::StepRecord& change = *data_.newest.add_records();
  change.mutable_plan()->set_position(40);
  v1::GroupSetting& setting = *change.mutable_plan()->mutable_group_change()->add_settings();
  setting.set_group("rest");
  setting.set_field("lr");
  setting.set_value("<0.1>");
  v1::StepRecord& applied = *data_.newest.add_records();
  applied.mutable_plan()->set_position(41);
  applied.mutable_plan()->mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  applied.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
  v1::StepRecord& rollback = *data_.newest.add_records();
  rollback.mutable_plan()->set_position(42);
  rollback.mutable_plan()->mutable_rollback()->set_reason("shard 1 lost step 7");
  StepPoint& skipped = curves_.points.emplace_back();
  skipped.position = 9;
  skipped.step = 7;
  skipped.skipped = true;
  skipped.reason = "overflow";
  const std::string html = Html("entries");
  EXPECT_THAT(html, HasSubstr("changed rest.lr=&lt;0.1&gt;"));
  EXPECT_THAT(html, HasSubstr("rolled back: shard 1 lost step 7"));
  EXPECT_THAT(html, HasSubstr("skipped step 7: overflow"));
  EXPECT_THAT(html, Not(HasSubstr(">41<")));
}

TEST_F(SectionsTest, ListsEventsAndCheckpoints) {
  v1::EventCount& event = *data_.status.add_events();
  event.set_name("takeover");
  event.set_count(2);
  EXPECT_THAT(Html("events"), HasSubstr("takeover</th><td class=\"n\">2</td>"));
  v1::CheckpointRow& bad = *data_.checkpoints.add_checkpoints();
  bad.mutable_checkpoint()->set_id("first");
  bad.set_problem("file <x> is damaged");
  data_.checkpoints_unix_millis = 1000;
  EXPECT_THAT(Html("checkpoints"), HasSubstr("file &lt;x&gt; is damaged"));
  EXPECT_THAT(Html("checkpoints"), HasSubstr("directory at 1970-01-01T00:00:01Z, newest first"));
  data_.checkpoints_problem = absl::FailedPreconditionError("there is no directory");
  EXPECT_THAT(Html("checkpoints"), HasSubstr("there is no directory"));
}

}  // namespace
}  // namespace kaon::coordinator
