#include "kernels/cuda/muon/muon_lane.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/test_device.h"

namespace kaon::kernels::cuda {
namespace {

MuonBatch BatchOf(const NewtonSchulzConfig& config, int64_t rows, int64_t cols) {
  return {&config, rows, cols, {BatchedMatrix{}}};
}

struct Lane {
  Lane()
      : symmetric(device.device(), device.products()),
        lane({device.device(), device.products(), symmetric, choice}) {}

  NewtonSchulzPlan* PlanOf(const MuonBatch& batch) {
    const absl::StatusOr<NewtonSchulzPlan*> plan = lane.PlanOf(batch);
    CHECK(plan.ok()) << plan.status();
    return *plan;
  }

  TestDevice device;
  SymmetricProducts symmetric;
  ProductChoice choice;
  MuonLane lane;
};

TEST(MuonLaneTest, APlanIsMadeOncePerShapeAndConfiguration) {
  Lane lane;
  NewtonSchulzConfig config;
  NewtonSchulzConfig other;
  other.steps = 4;
  ASSERT_TRUE(lane.lane.Reserve(1 << 16).ok());
  NewtonSchulzPlan* const plan = lane.PlanOf(BatchOf(config, 8, 16));
  EXPECT_EQ(lane.PlanOf(BatchOf(config, 8, 16)), plan);
  // The iteration is that of the transpose.
  EXPECT_EQ(lane.PlanOf(BatchOf(config, 16, 8)), plan);
  EXPECT_NE(lane.PlanOf(BatchOf(config, 8, 24)), plan);
  EXPECT_NE(lane.PlanOf(BatchOf(other, 8, 16)), plan);
  ASSERT_TRUE(lane.lane.Reserve(1 << 12).ok());
  EXPECT_EQ(lane.PlanOf(BatchOf(config, 8, 16)), plan);
}

TEST(MuonLaneTest, MoreMemoryThanTheDeviceHasIsRefused) {
  Lane lane;
  EXPECT_EQ(lane.lane.Reserve(uint64_t{1} << 40).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(lane.lane.Reserve(1 << 16).ok());
}

}  // namespace
}  // namespace kaon::kernels::cuda
