#include "server/admin_cli/report.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

namespace kaon::admin_cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
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

TEST(ParametersReportTest, WideTableHasBytesByElement) {
  EXPECT_THAT(ParametersWideText(Rows()), HasSubstr("matrix     78336              16.00\n"));
  EXPECT_THAT(ParametersWideText(Rows()), HasSubstr("-              3                  -\n"));
  EXPECT_THAT(ParametersText(Rows()), Not(HasSubstr("ELEMENT")));
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
  EXPECT_THAT(text, Not(HasSubstr("RATES")));
}

TEST(StepsReportTest, WideTableHasRatesScaleAndRanks) {
  EXPECT_THAT(StepsWideText(History()),
              HasSubstr("muon 0.01           1  0            6  00000000000000ab\n"));
}

TEST(StepsReportTest, ShowsWhenAStepWasDecidedIfThatIsKnown) {
  v1::StepHistoryResponse history = History();
  EXPECT_TRUE(StepsJson(history)["steps"][1]["decided"].is_null());
  (*history.mutable_decided_unix_millis())[3] = 1795749300000;
  EXPECT_EQ(StepsJson(history)["steps"][1]["decided"], "2026-11-27T03:15:00Z");
  EXPECT_TRUE(StepsJson(history)["steps"][0]["decided"].is_null());
  EXPECT_NE(StepsText(history).find("2026-11-27T03:15:00Z"), std::string::npos);
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

TEST(ParametersReportTest, StateOfADeadShardIsUnknownAndNotZero) {
  EXPECT_TRUE(AllParametersSeen({Rows()[0]}).ok());
  const absl::Status unseen = AllParametersSeen(Rows());
  EXPECT_EQ(unseen.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(
      unseen.message(),
      "state of 1 of 2 parameters is unknown: shard 0 did not tell it; kaonctl status says why");
  const Json row = ParametersJson(Rows())["parameters"][1];
  for (const char* key : {"updates_applied", "newton_schulz_updates", "state_bytes"}) {
    EXPECT_TRUE(row[key].is_null()) << key;
  }
}

TEST(HealthReportTest, IsHealthyOnlyIfEveryServerServes) {
  const HealthRow good = {"coordinator", "127.0.0.1:1", true, "SERVING", ""};
  const HealthRow bad = {"shard", "127.0.0.1:2", false, "NOT_SERVING", "read-only: /data is full"};
  EXPECT_EQ(HealthJson({{good}, {}})["healthy"], true);
  const HealthReport health = {{good, bad}, absl::OkStatus()};
  EXPECT_EQ(HealthJson(health)["healthy"], false);
  EXPECT_EQ(HealthJson(health)["servers"][1]["reason"], "read-only: /data is full");
  EXPECT_NE(HealthText(health).find("NOT_SERVING  read-only: /data is full"), std::string::npos);
  EXPECT_EQ(AllServe(health).message(), "1 of 2 servers do not serve: shard 127.0.0.1:2");
}

TEST(HealthReportTest, IsNotHealthyIfTheShardsAreUnknown) {
  const HealthReport health = {{{"coordinator", "127.0.0.1:1", true, "SERVING", ""}},
                               absl::PermissionDeniedError("role worker")};
  EXPECT_EQ(HealthJson(health)["healthy"], false);
  EXPECT_EQ(HealthJson(health)["shards_unknown"], "PERMISSION_DENIED: role worker");
  EXPECT_NE(HealthText(health).find("PERMISSION_DENIED: role worker"), std::string::npos);
  EXPECT_EQ(AllServe(health).code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace kaon::admin_cli
