#include "client/wait_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "client/runtime.h"
#include "client/transport/event_loop.h"
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

ClientOptions Impatient(ClientOptions options) {
  options.wait_log_interval = milliseconds(20);
  return options;
}

TEST_F(ClientTest, SaysOnTheLogWhatItWaitsFor) {
  testing::CapturedLog log;
  client_ = Connect(Impatient(Options()));
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

// Each call waits while no coordinator leads, says so, and succeeds afterwards.
TEST_F(ClientTest, SaysInEachCallWhatItWaitsFor) {
  client_ = Connect(Impatient(Options()));
  job_ = client_.Attach("small").value();
  Worker worker = job_.Join(0).value();
  const std::vector<float> frozen = {1, 2};
  const std::vector<TensorView> weights = {View(bias_), View(large_), View(frozen)};
  const std::string coordinator = "coordinator " + cluster_.address();
  const struct {
    const char* call;
    std::function<bool()> run;
    std::string text;
  } calls[] = {
      {"Register", [this] { return client_.Register(SmallJob()).ok(); },
       "for a coordinator to register job small"},
      {"Attach", [this] { return client_.Attach("small").ok(); },
       "for a coordinator to describe job small"},
      {"Refresh", [this] { return job_.Refresh().ok(); },
       "for a coordinator to describe job small"},
      {"LoadWeights", [&] { return worker.LoadWeights(weights).Get().ok(); },
       "not the holder (job small, rank 0), step 0"},
      {"Join", [this] { return job_.Join(0).ok(); }, "for " + coordinator + " to let it join"},
  };
  for (const auto& call : calls) {
    SCOPED_TRACE(call.call);
    const testing::CapturedLog log;
    cluster_.RedirectTo(cluster_.address());
    bool ok = false;
    std::thread waiting([&] { ok = call.run(); });
    AwaitInLog(log, call.text);
    cluster_.RedirectTo("");
    waiting.join();
    EXPECT_TRUE(ok);
  }
}

TEST_F(ClientTest, SaysBeforeFinishWhichPushesWait) {
  const testing::CapturedLog log;
  client_ = Connect(Impatient(Options()));
  job_ = client_.Attach("small").value();
  Worker worker = job_.Join(0).value();
  cluster_.SetCreditWindow(1 << 20);
  cluster_.HoldCredits(true);
  Step step = worker.Begin(First()).value();
  Future<Done> pushed = step.Push(1, View(large_));
  AwaitInLog(log, "for gradients to reach shard 0 (job small, rank 0), step 1");
  cluster_.HoldCredits(false);
  EXPECT_TRUE(pushed.Get());
}

TEST_F(ClientTest, SaysNothingWhileNothingWaits) {
  const testing::CapturedLog log;
  ClientOptions options = Impatient(Options());
  const std::shared_ptr<client::Runtime> runtime = client::Runtime::Create(options).value();
  std::atomic<int> asked = 0;
  int asked_at_first_text = 0;
  {
    const client::WaitLog wait_log(
        *runtime,
        [&] {
          if (asked_at_first_text == 0) asked_at_first_text = asked;
          return std::string("the test");
        },
        [&, begin = client::EventLoop::Now()] {
          return ++asked <= 3 ? absl::InfiniteFuture() : begin;
        });
    AwaitInLog(log, "waited ");
  }
  runtime->Shutdown();
  EXPECT_EQ(asked_at_first_text, 4);
}

}  // namespace
}  // namespace kaon
