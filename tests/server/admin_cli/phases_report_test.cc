#include "server/admin_cli/phases_report.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace kaon::admin_cli {
namespace {

v1::StepHistoryResponse TwoSteps() {
  v1::StepHistoryResponse history;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    phases { shard: 0
      steps { position: 6 step: 4 total_microseconds: 5000
              active_microseconds: 3000
        phases { name: "receive" begin_microseconds: 10 end_microseconds: 3000
                 busy_microseconds: 2500 active_microseconds: 2000 hidden_microseconds: 1500 }
        phases { name: "fold" begin_microseconds: 20 end_microseconds: 3010
                 busy_microseconds: 4000 active_microseconds: 2500 hidden_microseconds: 1600 }
        phases { name: "decide" begin_microseconds: 3500 end_microseconds: 5000
                 active_microseconds: 0 hidden_microseconds: 0 } }
      steps { position: 7 step: 5 total_microseconds: 100 active_microseconds: 0 } }
    phases { shard: 2
      steps { position: 6 step: 4 total_microseconds: 700
        phases { name: "apply" begin_microseconds: 600 end_microseconds: 700
                 busy_microseconds: 100 } } })",
                                                            &history));
  return history;
}

TEST(PhasesReportTest, TextHasATablePerStepAndWhatWasHidden) {
  EXPECT_EQ(PhasesText(TwoSteps()),
            "step 4 (position 6)\n"
            "SHARD  PHASE    BEGIN MS  END MS  BUSY MS  HIDDEN MS  IDLE MS\n"
            "    0  receive     0.010   3.000    2.500      1.500\n"
            "    0  fold        0.020   3.010    4.000      1.600\n"
            "    0  decide      3.500   5.000    0.000      0.000\n"
            "    0  all         0.000   5.000    6.500      1.500    2.000\n"
            "    2  apply       0.600   0.700    0.100          -\n"
            "    2  all         0.000   0.700    0.100          -        -\n"
            "\n"
            "step 5 (position 7)\n"
            "SHARD  PHASE  BEGIN MS  END MS  BUSY MS  HIDDEN MS  IDLE MS\n"
            "    0  all       0.000   0.100    0.000      0.000    0.100\n");
}

TEST(PhasesReportTest, JsonHasTheDocumentedKeys) {
  const nlohmann::ordered_json json = PhasesJson(TwoSteps());
  // Shard 2 does not report hidden time.
  EXPECT_EQ(json["shards"][1].dump(),
            R"({"shard":2,"steps":[{"position":6,"step":4,"total_microseconds":700,)"
            R"("hidden_microseconds":null,"idle_microseconds":null,)"
            R"("phases":[{"name":"apply","begin_microseconds":600,)"
            R"("end_microseconds":700,"busy_microseconds":100,"hidden_microseconds":null}]}],)"
            R"("problem":""})");
  const auto& step = json["shards"][0]["steps"][0];
  EXPECT_EQ(step["hidden_microseconds"], 1500);
  EXPECT_EQ(step["idle_microseconds"], 2000);
  EXPECT_EQ(step["phases"][1]["hidden_microseconds"], 1600);
}

TEST(PhasesReportTest, FailsIfAShardDidNotTellItsPhases) {
  v1::StepHistoryResponse history = TwoSteps();
  EXPECT_TRUE(AllPhasesSeen(history).ok());
  history.mutable_phases(1)->set_problem("UNAVAILABLE: connection refused");
  const absl::Status unseen = AllPhasesSeen(history);
  EXPECT_EQ(unseen.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(unseen.message().find("shard 2: UNAVAILABLE: connection refused"),
            absl::string_view::npos)
      << unseen;
}

}  // namespace
}  // namespace kaon::admin_cli
