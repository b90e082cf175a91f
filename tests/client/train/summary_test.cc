#include "client/train/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace kaon::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

StepReport MakeReport() {
  StepReport report;
  report.record.step = 12;
  report.record.applied = true;
  report.record.loss = 2.5;
  report.record.norms = {{"muon", 0.25, true, 1}, {"adamw", 2, false, 0.5}};
  report.tokens = 512;
  report.seconds = {.compute = 0.06, .push = 0.01, .decide = 0.02, .pull = 0.01};
  report.push_bytes = 1000000;
  report.pull_bytes = 2000000;
  return report;
}

RunSummary MakeSummary() {
  RunSummary summary;
  summary.first_step = 3;
  summary.last_step = 10;
  summary.applied = 6;
  summary.skipped = 1;
  summary.validation_loss = 1.75;
  summary.bigram_loss = 2.5;
  summary.fivegram_loss = 1.5;
  summary.weights_digest = 0xabc;
  summary.parameters = {{"w", {4, 3}, "muon", "matrix", 6, true, 6},
                        {"b", {4}, "adamw", "ndim < 2", 6, false, 0}};
  summary.push_bytes = 77;
  summary.pull_bytes = 88;
  summary.shm_bytes = 2500000;
  return summary;
}

TEST(FormatStepTest, ShowsLossNormsClippingRatesAndPhases) {
  EXPECT_EQ(FormatStep(MakeReport()),
            "step    12  loss 2.5000  |muon| 0.2500 (exempt)  |adamw| 2.0000 clip 0.5000  5120 "
            "tok/s  push 100.0 MB/s  pull 200.0 MB/s  ms: compute 60.0 push 10.0 decide 20.0 pull "
            "10.0");
}

TEST(FormatStepTest, SaysWhyAStepWasSkipped) {
  StepReport report = MakeReport();
  report.record.applied = false;
  report.record.norms.clear();
  report.record.reason = "non-finite gradient of parameter w from rank 0";
  EXPECT_THAT(FormatStep(report),
              HasSubstr("SKIPPED: non-finite gradient of parameter w from rank 0"));
}

TEST(FormatStepTest, LeavesOutANormThatWasNotTaken) {
  StepReport report = MakeReport();
  report.record.norms[1].norm.reset();
  EXPECT_THAT(FormatStep(report), Not(HasSubstr("adamw")));
  EXPECT_THAT(FormatStep(report), HasSubstr("|muon| 0.2500"));
}

TEST(FormatStepTest, SurvivesPhasesThatTookNoTime) {
  StepReport report = MakeReport();
  report.seconds = {};
  EXPECT_THAT(FormatStep(report), HasSubstr("push 0.0 MB/s"));
}

TEST(FormatSummaryTest, ShowsRoutesLossesAndDigest) {
  const std::string text = FormatSummary(MakeSummary());
  EXPECT_THAT(text, HasSubstr("route muon     1 parameters, 6 updates"));
  EXPECT_THAT(text, HasSubstr("steps 4 .. 10: 6 applied, 1 skipped"));
  EXPECT_THAT(text, HasSubstr("validation loss 1.7500 nats per character (bigram 2.5000, 5-gram "
                              "1.5000)"));
  EXPECT_THAT(text, HasSubstr("weights digest 0000000000000abc"));
  EXPECT_THAT(text, HasSubstr("of both 2.5 MB through shared memory"));
  EXPECT_THAT(text, Not(HasSubstr("(stopped)")));
}

TEST(SummaryJsonTest, HasWhatProgramsReadFromIt) {
  const nlohmann::json json = nlohmann::json::parse(SummaryJson(MakeSummary()));
  EXPECT_EQ(json["steps"], 7);
  EXPECT_EQ(json["applied"], 6);
  EXPECT_EQ(json["skipped"], 1);
  EXPECT_EQ(json["validation_loss"], 1.75);
  EXPECT_EQ(json["bigram_loss"], 2.5);
  EXPECT_EQ(json["fivegram_loss"], 1.5);
  EXPECT_EQ(json["weights_digest"], "0000000000000abc");
  EXPECT_EQ(json["newton_schulz_updates"], nlohmann::json({{"w", 6}}));
  EXPECT_EQ(json["push_bytes"], 77);
  EXPECT_EQ(json["pull_bytes"], 88);
  EXPECT_EQ(json["shm_bytes"], 2500000);
  EXPECT_TRUE(json.contains("seconds"));
}

TEST(StepJsonTest, IsOneLineWithNormsPerGroup) {
  const std::string line = StepJson(MakeReport());
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  const nlohmann::json json = nlohmann::json::parse(line);
  EXPECT_EQ(json["groups"]["adamw"]["clip_factor"], 0.5);
  EXPECT_EQ(json["groups"]["muon"]["exempt"], true);
  EXPECT_EQ(json["loss"], 2.5);
  EXPECT_FALSE(json.contains("reason"));
}

TEST(StepJsonTest, WritesLossesThatAreMissingOrNotFiniteAsNull) {
  StepReport report = MakeReport();
  report.record.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(nlohmann::json::parse(StepJson(report))["loss"].is_null());
  report.record.loss.reset();
  EXPECT_TRUE(nlohmann::json::parse(StepJson(report))["loss"].is_null());
}

TEST(StepJsonTest, SurvivesAReasonThatIsNoText) {
  StepReport report = MakeReport();
  report.record.applied = false;
  report.record.reason = "bad \xff";
  EXPECT_THAT(StepJson(report), HasSubstr("\"reason\":\"bad "));
}

}  // namespace
}  // namespace kaon::train
