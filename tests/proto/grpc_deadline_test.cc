#include "proto/grpc_deadline.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>

namespace kaon::proto {
namespace {

// Deadlines use a clock that never jumps (T9).
TEST(GrpcDeadlineTest, IsOnTheClockThatNeverJumps) {
  const gpr_timespec before = gpr_now(GPR_CLOCK_MONOTONIC);
  const gpr_timespec deadline = DeadlineAfter(absl::Seconds(5));
  const gpr_timespec after = gpr_now(GPR_CLOCK_MONOTONIC);
  EXPECT_EQ(deadline.clock_type, GPR_CLOCK_MONOTONIC);
  const gpr_timespec five = gpr_time_from_seconds(5, GPR_TIMESPAN);
  EXPECT_GE(gpr_time_cmp(deadline, gpr_time_add(before, five)), 0);
  EXPECT_LE(gpr_time_cmp(deadline, gpr_time_add(after, five)), 0);
}

TEST(GrpcDeadlineTest, OfTheLongestDurationsIsNeverThere) {
  for (const absl::Duration longest :
       {absl::InfiniteDuration(), absl::FromChrono(std::chrono::milliseconds::max())}) {
    EXPECT_EQ(gpr_time_cmp(DeadlineAfter(longest), gpr_inf_future(GPR_CLOCK_MONOTONIC)), 0);
  }
}

TEST(GrpcDeadlineTest, IsTakenByACallAsItIs) {
  grpc::ClientContext context;
  const gpr_timespec deadline = DeadlineAfter(absl::Milliseconds(1500));
  context.set_deadline(deadline);
  EXPECT_EQ(context.raw_deadline().clock_type, GPR_CLOCK_MONOTONIC);
  EXPECT_EQ(gpr_time_cmp(context.raw_deadline(), deadline), 0);
}

}  // namespace
}  // namespace kaon::proto
