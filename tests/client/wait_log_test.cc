#include "client/wait_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/client_fixture.h"
#include "tests/testing/captured_log.h"

namespace kaon {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Waits until `text` is logged; the time limit of the test is the only other way out.
void AwaitInLog(const testing::CapturedLog& log, const std::string& text) {
  while (log.text().find(text) == std::string::npos) std::this_thread::yield();
}

TEST_F(ClientTest, SaysOnTheLogWhatItWaitsFor) {
  testing::CapturedLog log;
  ClientOptions options = Options();
  options.wait_log_interval = milliseconds(20);
  client_ = Connect(options);
  job_ = client_.Register(SmallJob()).value();
  EXPECT_FALSE(job_.WaitForWeights(milliseconds(500)));
  Worker worker = job_.Join(0).value();
  cluster_.HoldDecisions(true);
  Step step = PushedStep(worker);
  Future<StepRecord> record = step.Finish();
  const std::string decision = "for the decision of coordinator " + cluster_.address() +
                               ": every rank must push its gradients (job small, rank 0), step 1";
  AwaitInLog(log, decision);
  cluster_.HoldDecisions(false);
  EXPECT_TRUE(record.Get());
  cluster_.HoldPulls(true);
  std::vector<float> bias(4);
  Future<Done> pulled = job_.Pull(1, {{"bias", {bias.data(), 4}}});
  AwaitInLog(log, "for step 1 of job small from shard 0");
  cluster_.HoldPulls(false);
  EXPECT_TRUE(pulled.Get());
  EXPECT_THAT(log.text(), HasSubstr("for weights of job small: rank 0 loads them"));
}

}  // namespace
}  // namespace kaon
