#include "client/train/stop_gate.h"

#include <gtest/gtest.h>

namespace kaon::train {
namespace {

TEST(StopGateTest, LetsEveryWorkerIntoAStepThatOneHasBegun) {
  std::atomic<bool> signalled{false};
  StopGate gate(signalled);
  EXPECT_TRUE(gate.MayBegin(7));
  signalled = true;
  EXPECT_TRUE(gate.MayBegin(7));
  EXPECT_FALSE(gate.MayBegin(8));
  EXPECT_FALSE(gate.MayBegin(8));
}

TEST(StopGateTest, ClosesAtOnceAfterAFailure) {
  std::atomic<bool> signalled{false};
  StopGate gate(signalled);
  EXPECT_TRUE(gate.MayBegin(1));
  gate.Fail(absl::DataLossError("shard 1"));
  EXPECT_FALSE(gate.MayBegin(1));
}

TEST(StopGateTest, KeepsTheFirstFailure) {
  std::atomic<bool> signalled{false};
  StopGate gate(signalled);
  EXPECT_TRUE(gate.failure().ok());
  gate.Fail(absl::DataLossError("shard 1"));
  gate.Fail(absl::CancelledError("consequence"));
  EXPECT_EQ(gate.failure(), absl::DataLossError("shard 1"));
}

}  // namespace
}  // namespace kaon::train
