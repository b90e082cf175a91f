#include "server/admin_cli/report.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

namespace kaon::admin_cli {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

v1::GetStatusResponse TwoShards() {
  return Parse<v1::GetStatusResponse>(R"(
    holder: true ballot { counter: 3 incarnation_high: 1 incarnation_low: 2 }
    shards { shard: 0 address: "127.0.0.1:1" connected: true description {
      state { applied_position: 5 applied_step: 3 durability: DURABILITY_MODE_NONE }
      applied_steps: 2 skipped_steps: 1 weights_digest: 0xffffffffffffffff backend: "cpu+onednn"
      build: "kaon 1" device_class: "Xeon" } }
    shards { shard: 1 address: "127.0.0.1:2" connected: true description { weights_digest: 3 } }
    workers { rank: 1 attempt { ballot { counter: 3 } number: 7 } begun_step: 4 }
    job: "run" phase: "step 4" applied_step: 3)");
}

TEST(StatusReportTest, WeightsDigestIsTheSumOfTheShards) {
  EXPECT_EQ(StatusJson(TwoShards())["weights_digest"], "0000000000000002");
}

TEST(StatusReportTest, HasNoWeightsDigestWhileAShardIsAway) {
  v1::GetStatusResponse status = TwoShards();
  status.mutable_shards(1)->set_connected(false);
  status.mutable_shards(1)->set_problem("connection refused");
  EXPECT_TRUE(StatusJson(status)["weights_digest"].is_null());
  EXPECT_NE(StatusText(status).find("connection refused"), std::string::npos);
}

TEST(StatusReportTest, JsonHasTheDocumentedKeys) {
  const Json json = StatusJson(TwoShards());
  EXPECT_EQ(json["phase"], "step 4");
  EXPECT_EQ(json["applied_step"], 3);
  EXPECT_EQ(json["ballot"]["incarnation"], "00000000000000010000000000000002");
  EXPECT_EQ(json["shards"][0]["durability"], "none");
  EXPECT_EQ(json["shards"][0]["skipped_steps"], 1);
  EXPECT_EQ(json["shards"][0]["build"], "kaon 1");
  EXPECT_EQ(json["shards"][0]["device_class"], "Xeon");
  EXPECT_EQ(json["workers"][0]["attempt"], "3.7");
}

TEST(StatusReportTest, TextShowsTheDurabilityMode) {
  EXPECT_NE(StatusText(TwoShards()).find("none"), std::string::npos);
}

TEST(StatusReportTest, ShowsWhatAShardKeepsOnDisk) {
  v1::GetStatusResponse status = TwoShards();
  v1::DescribeShardResponse& facts = *status.mutable_shards(0)->mutable_description();
  facts.mutable_state()->set_durability(v1::DURABILITY_MODE_JOURNAL);
  facts.mutable_journal()->set_bytes(123456);
  facts.mutable_journal()->set_recovered_entries(7);
  facts.mutable_journal()->set_recovery_seconds(0.5);
  facts.mutable_journal()->set_torn_tail("12 bytes");
  const Json row = StatusJson(status)["shards"][0];
  EXPECT_EQ(row["durability"], "journal");
  EXPECT_EQ(row["journal_bytes"], 123456);
  EXPECT_EQ(row["recovered_entries"], 7);
  EXPECT_EQ(row["recovery_seconds"], 0.5);
  EXPECT_EQ(row["torn_tail"], "12 bytes");
  EXPECT_EQ(row["read_only_reason"], "");
  EXPECT_NE(StatusText(status).find("123456"), std::string::npos);
}

TEST(StatusReportTest, ShowsTheNewestSnapshotAndWhyThereIsNoNewerOne) {
  v1::GetStatusResponse status = TwoShards();
  EXPECT_EQ(StatusJson(status)["shards"][0]["snapshot_position"], 0);
  v1::SnapshotStatus& snapshot =
      *status.mutable_shards(0)->mutable_description()->mutable_snapshot();
  snapshot.set_position(44);
  snapshot.set_step(42);
  snapshot.set_bytes(1000);
  snapshot.set_seconds(0.5);
  snapshot.set_in_progress(true);
  snapshot.set_problem("no space left");
  const Json row = StatusJson(status)["shards"][0];
  EXPECT_EQ(row["snapshot_position"], 44);
  EXPECT_EQ(row["snapshot_step"], 42);
  EXPECT_EQ(row["snapshot_bytes"], 1000);
  EXPECT_EQ(row["snapshot_seconds"], 0.5);
  EXPECT_EQ(row["snapshot_in_progress"], true);
  EXPECT_EQ(row["snapshot_problem"], "no space left");
  EXPECT_NE(StatusText(status).find("step 42"), std::string::npos);
  EXPECT_NE(StatusText(status).find("snapshot: no space left"), std::string::npos);
}

// P18: "service turns read-only (Pull works), says why".
TEST(StatusReportTest, TextSaysWhyAShardIsReadOnly) {
  v1::GetStatusResponse status = TwoShards();
  status.mutable_shards(0)->mutable_description()->mutable_journal()->set_read_only_reason(
      "no space left");
  EXPECT_NE(StatusText(status).find("read-only: no space left"), std::string::npos);
}

TEST(StatusReportTest, TextNamesLostState) {
  v1::GetStatusResponse status = TwoShards();
  status.mutable_shards(0)->mutable_description()->mutable_state()->set_data_loss("state is gone");
  EXPECT_NE(StatusText(status).find("state is gone"), std::string::npos);
}

v1::JobDescription Job() {
  return Parse<v1::JobDescription>(R"(
    definition { name: "run" world_size: 2 max_grad_norm: 1 matrix_group: "muon"
      scalar_group: "adamw" parameters { name: "w" }
      groups { name: "muon" rule: RULE_MUON lr: 0.02 weight_decay: 0.1 }
      groups { name: "adamw" rule: RULE_ADAMW lr: 0.006 clip_policy: CLIP_POLICY_CLIP } }
    timeline: 1 applied_step: 3 weights_loaded: true shard_addresses: "127.0.0.1:1")");
}

TEST(JobReportTest, NamesGroupsWithTheirRules) {
  const Json json = JobJson(Job());
  EXPECT_EQ(json["groups"][0]["rule"], "muon");
  EXPECT_EQ(json["groups"][0]["clip"], "by rule");
  EXPECT_EQ(json["groups"][1]["clip"], "clip");
  EXPECT_EQ(json["num_parameters"], 1);
  EXPECT_EQ(json["shards"][0], "127.0.0.1:1");
}

TEST(JobReportTest, TextSaysWhyTheJobStopped) {
  v1::JobDescription job = Job();
  job.set_stopped_reason("DATA_LOSS: shard 1");
  EXPECT_NE(JobText(job).find("DATA_LOSS: shard 1"), std::string::npos);
}

std::vector<v1::ParameterRow> Rows() {
  return {Parse<v1::ParameterRow>(R"(
            spec { name: "hidden.0.weight" shape: 192 shape: 408 dtype: DTYPE_FLOAT32 }
            placement { parameter_id: 4 group: "muon" route_reason: "matrix" shard: 1
              norm_group: "main" layout { kind: MATRIX_LAYOUT_KIND_SPLIT_ROWS }
              lr_multiplier: 1 weight_decay_multiplier: 0.5 counted: true }
            rule: RULE_MUON clip_exempt: true
            blocks { rows: 64 cols: 408 count: 3 scale: 4.03 }
            state { state_bytes: 1253376 updates_applied: 60 newton_schulz_updates: 60 })"),
          Parse<v1::ParameterRow>(R"(spec { name: "table" shape: 3 frozen: true })")};
}

TEST(ParametersReportTest, ShowsRouteAndUpdates) {
  const Json row = ParametersJson(Rows())["parameters"][0];
  EXPECT_EQ(row["name"], "hidden.0.weight");
  EXPECT_EQ(row["route"], "muon");
  EXPECT_EQ(row["reason"], "matrix");
  EXPECT_EQ(row["shape"], Json::array({192, 408}));
  EXPECT_EQ(row["dtype"], "float32");
  EXPECT_EQ(row["shard"], 1);
  EXPECT_EQ(row["state_bytes"], 1253376);
  EXPECT_EQ(row["updates_applied"], 60);
  EXPECT_EQ(row["newton_schulz_updates"], 60);
}

TEST(ParametersReportTest, ShowsLayoutMatricesAndNormGroup) {
  const Json row = ParametersJson(Rows())["parameters"][0];
  EXPECT_EQ(row["layout"], "split_rows");
  EXPECT_EQ(row["blocks"][0], Json({{"rows", 64}, {"cols", 408}, {"count", 3}, {"scale", 4.03}}));
  EXPECT_EQ(row["norm_group"], "main");
  EXPECT_EQ(row["counted"], true);
  EXPECT_EQ(row["weight_decay_multiplier"], 0.5);
  EXPECT_NE(ParametersText(Rows()).find("main, exempt"), std::string::npos);
  EXPECT_NE(ParametersText(Rows()).find("3 of 64x408 * 4.03"), std::string::npos);
  EXPECT_TRUE(ParametersJson(Rows())["parameters"][1]["layout"].is_null());
}

TEST(ParametersReportTest, FrozenParameterHasNoRule) {
  EXPECT_EQ(ParametersJson(Rows())["parameters"][1]["route"], "frozen");
  EXPECT_NE(ParametersText(Rows()).find("frozen"), std::string::npos);
}

v1::StepHistoryResponse History() {
  return Parse<v1::StepHistoryResponse>(R"(
    records { plan { position: 1 registration {} } decision { outcome: OUTCOME_APPLY } }
    records {
      plan { position: 3 round: 2 step { step: 1 kind: STEP_KIND_TRAIN loss_scale: 1
        members { rank: 0 token_weight: 256 } rates { group: "muon" learning_rate: 0.01 } } }
      decision { outcome: OUTCOME_SKIP reason: "non-finite gradient of parameter w from rank 0"
        norms { group: "adamw" norm: 2 clip_factor: 0.5 }
        norms { group: "muon" norm: 9 exempt: true clip_factor: 1 } loss: 4.5
        norm_groups { norm_group: "mtp" norm: 8 live_norm: 6 clip_factor: 0.25 }
        applied_updates: 6 clip_reductions_total: 3 state_digest: 0xab } })");
}

TEST(StepsReportTest, ShowsNormsClipFactorsAndTheReasonOfASkip) {
  const Json step = StepsJson(History())["steps"][1];
  EXPECT_EQ(step["step"], 1);
  EXPECT_EQ(step["kind"], "train");
  EXPECT_EQ(step["outcome"], "skip");
  EXPECT_EQ(step["reason"], "non-finite gradient of parameter w from rank 0");
  EXPECT_EQ(step["norms"][0]["clip_factor"], 0.5);
  EXPECT_EQ(step["norms"][1]["exempt"], true);
  EXPECT_EQ(step["norm_groups"].dump(),
            R"([{"norm_group":"mtp","norm":8.0,"live_norm":6.0,"clip_factor":0.25}])");
  EXPECT_EQ(step["applied_updates"], 6);
  EXPECT_EQ(step["clip_reductions_total"], 3);
  EXPECT_EQ(step["state_digest"], "00000000000000ab");
  EXPECT_EQ(step["rates"]["muon"], 0.01);
  EXPECT_EQ(step["members"][0]["token_weight"], 256);
  const std::string text = StepsText(History());
  EXPECT_NE(text.find("adamw 2 x 0.5, muon 9 x exempt"), std::string::npos) << text;
}

// [T3], [T5]: 0 is the norm of gradients that are all 0, and nothing else.
TEST(StepsReportTest, ANormThatWasNotTakenIsNullAndADash) {
  const Json skipped = StepsJson(History())["steps"][1];
  EXPECT_TRUE(skipped["grad_norm"].is_null());
  EXPECT_TRUE(skipped["live_norm"].is_null());
  const auto history = Parse<v1::StepHistoryResponse>(R"(
    records { plan { position: 3 step { step: 1 kind: STEP_KIND_TRAIN } }
      decision { outcome: OUTCOME_APPLY grad_norm: 0 live_norm: 0 norms { group: "adamw" }
        norm_groups { norm_group: "main" live_norm: 0 } } })");
  const Json step = StepsJson(history)["steps"][0];
  EXPECT_EQ(step["grad_norm"], 0.0);
  EXPECT_EQ(step["live_norm"], 0.0);
  EXPECT_TRUE(step["norms"][0]["norm"].is_null());
  EXPECT_TRUE(step["norm_groups"][0]["norm"].is_null());
  EXPECT_EQ(step["norm_groups"][0]["live_norm"], 0.0);
  EXPECT_NE(StepsText(history).find("adamw - x 0"), std::string::npos) << StepsText(history);
}

TEST(StepsReportTest, RegistrationHasNoStep) {
  const Json registration = StepsJson(History())["steps"][0];
  EXPECT_EQ(registration["kind"], "registration");
  EXPECT_EQ(registration.count("step"), 0);
}

TEST(StepsReportTest, AChangeOfGroupsShowsWhatItSet) {
  const auto history = Parse<v1::StepHistoryResponse>(R"(
    records { plan { position: 4 group_change { groups { name: "adamw" }
      settings { group: "adamw" field: "lr" value: "0.5" position: 4 }
      settings { group: "adamw" field: "adamw.eps" value: "1e-6" position: 4 } } }
      decision { outcome: OUTCOME_APPLY } })");
  const Json change = StepsJson(history)["steps"][0];
  EXPECT_EQ(change["position"], 4);
  EXPECT_EQ(change["kind"], "group_change");
  EXPECT_EQ(change.count("step"), 0);
  EXPECT_EQ(change["settings"][0]["group"], "adamw");
  EXPECT_EQ(change["settings"][0]["field"], "lr");
  EXPECT_EQ(change["settings"][1]["value"], "1e-6");
  EXPECT_NE(StepsText(history).find("adamw lr=0.5, adamw adamw.eps=1e-6"), std::string::npos);
}

TEST(HealthReportTest, IsHealthyOnlyIfEveryServerServes) {
  const HealthRow good = {"coordinator", "127.0.0.1:1", true, "SERVING", ""};
  const HealthRow bad = {"shard", "127.0.0.1:2", false, "NOT_SERVING", "read-only: /data is full"};
  EXPECT_EQ(HealthJson({good})["healthy"], true);
  EXPECT_EQ(HealthJson({good, bad})["healthy"], false);
  EXPECT_EQ(HealthJson({good, bad})["servers"][1]["reason"], "read-only: /data is full");
  EXPECT_NE(HealthText({good, bad}).find("NOT_SERVING  read-only: /data is full"),
            std::string::npos);
}

}  // namespace
}  // namespace kaon::admin_cli
