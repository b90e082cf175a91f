#include "server/coordinator/service/unary_call.h"

#include <gtest/gtest.h>

#include <future>
#include <utility>
#include <variant>

namespace kaon::coordinator {
namespace {

StepMachineOptions Options() {
  StepMachineOptions options;
  options.address = "a:1";
  options.shard_addresses = {"s:1"};
  return options;
}

// Submits a request after `before`. Returns whether the machine got it, and the status of its end.
std::pair<bool, absl::Status> Submitted(void (*before)(WaitingReactor& reactor)) {
  MachineLoop loop([](const SendToShard&) {});
  loop.Start(Options());
  WaitingReactor* const reactor = WaitingReactor::Make(loop);
  before(*reactor);
  bool asked = false;
  std::promise<absl::Status> ended;
  reactor->Submit(
      [&asked](StepMachine& machine, CallId call) {
        asked = true;
        machine.GetJob(call, v1::GetJobRequest());
      },
      [&ended](CoordinatorAction action) {
        const auto* failed = std::get_if<AwaitFailed>(&action);
        ended.set_value(failed != nullptr ? failed->status
                                          : std::get<ReplyGetJob>(action).response.status());
      });
  const absl::Status status = ended.get_future().get();
  reactor->OnDone();
  return {asked, status};
}

TEST(WaitingReactorTest, AsksForACallerThatWaits) {
  const auto [asked, status] = Submitted([](WaitingReactor&) {});
  EXPECT_TRUE(asked);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

// A caller that cancels while it waits, say for the verification of files, changes nothing.
TEST(WaitingReactorTest, AsksNothingForACallerThatIsGone) {
  const auto [asked, status] = Submitted([](WaitingReactor& reactor) { reactor.OnCancel(); });
  EXPECT_FALSE(asked);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace kaon::coordinator
