#include "server/coordinator/machine_loop.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace kaon::coordinator {
namespace {

StepMachineOptions Options() {
  StepMachineOptions options;
  options.address = "a:1";
  options.shard_addresses = {"s:1"};
  options.heartbeat = absl::Milliseconds(5);
  return options;
}

void Ignore(SendToShard) {}

absl::Status StatusOf(const CoordinatorAction& action) {
  return std::get<AwaitFailed>(action).status;
}

TEST(MachineLoopTest, EventsWaitForTheStartAndRunInOrder) {
  MachineLoop loop(Ignore);
  std::vector<int> ran;
  std::promise<void> done;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(loop.Post([&ran, i](StepMachine&, absl::Time) { ran.push_back(i); }).ok());
  }
  EXPECT_TRUE(loop.Post([&done](StepMachine&, absl::Time) { done.set_value(); }).ok());
  EXPECT_TRUE(ran.empty());
  loop.Start(Options());
  done.get_future().wait();
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2}));
}

TEST(MachineLoopTest, TicksAtTheHeartbeat) {
  std::promise<void> third;
  int probes = 0;
  MachineLoop loop([&](const SendToShard& send) {
    EXPECT_EQ(send.shard, 0);
    EXPECT_TRUE(send.content().has_probe());
    if (++probes == 3) third.set_value();
  });
  loop.PostAlways([](StepMachine& machine, absl::Time) { machine.OnShardConnected(0); });
  loop.Start(Options());
  third.get_future().wait();
}

TEST(MachineLoopTest, AnswerReachesTheSinkOfItsCall) {
  MachineLoop loop(Ignore);
  loop.Start(Options());
  std::promise<absl::Status> answered;
  loop.Submit(
      loop.NewCall(),
      [](StepMachine& machine, CallId call) { machine.GetJob(call, v1::GetJobRequest()); },
      [&answered](CoordinatorAction action) {
        answered.set_value(std::get<ReplyGetJob>(action).response.status());
      });
  EXPECT_EQ(answered.get_future().get().code(), absl::StatusCode::kUnavailable);
}

TEST(MachineLoopTest, CancelEndsAnOpenCallOnce) {
  MachineLoop loop(Ignore);
  loop.Start(Options());
  std::promise<absl::Status> ended;
  const CallId call = loop.NewCall();
  loop.Submit(
      call, [](StepMachine&, CallId) {},
      [&ended](CoordinatorAction action) { ended.set_value(StatusOf(action)); });
  loop.Cancel(call);
  loop.Cancel(call);
  EXPECT_EQ(ended.get_future().get().code(), absl::StatusCode::kCancelled);
  loop.Stop();
}

TEST(MachineLoopTest, ARequestThatMayNotRunEndsWithItsReason) {
  MachineLoop loop(Ignore);
  loop.Start(Options());
  const absl::Status why = absl::UnavailableError("try again in 1s");
  std::promise<absl::Status> ended;
  loop.Submit(
      loop.NewCall(), [&](StepMachine&, CallId call) { loop.End(call, why); },
      [&ended](CoordinatorAction action) { ended.set_value(StatusOf(action)); });
  EXPECT_EQ(ended.get_future().get(), why);
  loop.Stop();
}

TEST(MachineLoopTest, StopEndsOpenCallsAndLaterOnesFail) {
  MachineLoop loop(Ignore);
  loop.Start(Options());
  std::vector<absl::StatusCode> codes;
  const auto sink = [&codes](CoordinatorAction action) {
    codes.push_back(StatusOf(action).code());
  };
  loop.Submit(
      loop.NewCall(), [](StepMachine&, CallId) {}, sink);
  loop.Stop();
  EXPECT_EQ(codes, std::vector<absl::StatusCode>{absl::StatusCode::kUnavailable});
  loop.Submit(
      loop.NewCall(), [](StepMachine&, CallId) {}, sink);
  EXPECT_EQ(codes, std::vector<absl::StatusCode>(2, absl::StatusCode::kUnavailable));
  EXPECT_EQ(loop.Post([](StepMachine&, absl::Time) {}).code(), absl::StatusCode::kUnavailable);
}

// Waiting events hold a bounded number of bytes (P17).
TEST(MachineLoopTest, WhatWaitsHoldsOnlySoManyBytes) {
  MachineLoop loop(Ignore);
  constexpr size_t kMegabytes = size_t{1} << 20;
  EXPECT_TRUE(loop.Post([](StepMachine&, absl::Time) {}, 200 * kMegabytes).ok());
  const absl::Status refused = loop.Post([](StepMachine&, absl::Time) {}, 57 * kMegabytes);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "coordinator has 209715200 bytes of events waiting, at most 268435456");
  EXPECT_TRUE(loop.Post([](StepMachine&, absl::Time) {}, 56 * kMegabytes).ok());
  // An event without bytes does not wait for the others.
  std::promise<void> ran;
  EXPECT_TRUE(loop.Post([&ran](StepMachine&, absl::Time) { ran.set_value(); }).ok());
  loop.Start(Options());
  ran.get_future().wait();
  // A single event may exceed the bound, once the bytes of the earlier ones are released.
  absl::Status large;
  do {
    large = loop.Post([](StepMachine&, absl::Time) {}, 300 * kMegabytes);
  } while (!large.ok());
}

TEST(MachineLoopTest, FullQueueIsAnExhaustedResource) {
  MachineLoop loop(Ignore);
  absl::Status posted;
  while (posted.ok()) posted = loop.Post([](StepMachine&, absl::Time) {});
  EXPECT_EQ(posted.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(posted.message(), "coordinator has 65536 events waiting, at most 65536");
}

}  // namespace
}  // namespace kaon::coordinator
