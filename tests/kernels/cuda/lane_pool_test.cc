#include "kernels/cuda/lane_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "kernels/cuda/on_host/device_on_host.h"

namespace kaon::kernels::cuda {
namespace {

TEST(LanePoolTest, LendsEachLaneToOneBorrower) {
  const std::unique_ptr<Device> device = on_host::NewDeviceOnHost({});
  const std::unique_ptr<LanePool> pool = LanePool::Create(*device, 3).value();
  const LanePool::Borrowed one = pool->Borrow();
  std::vector<LanePool::Borrowed> others = pool->BorrowSome(4);
  ASSERT_EQ(others.size(), 2);
  EXPECT_EQ((std::set<Lane*>{&*one, &*others[0], &*others[1]}).size(), 3);
}

TEST(LanePoolTest, BlocksUntilALaneIsIdle) {
  const std::unique_ptr<Device> device = on_host::NewDeviceOnHost({});
  const std::unique_ptr<LanePool> pool = LanePool::Create(*device, 1).value();
  std::vector<LanePool::Borrowed> borrowed = pool->BorrowSome(1);
  Lane* const lane = &*borrowed.front();
  std::thread other([&] { EXPECT_EQ(&*pool->Borrow(), lane); });
  borrowed.clear();
  other.join();
}

TEST(LanePoolTest, SaysWhatItsLanesNeed) {
  on_host::DeviceOnHostOptions options;
  options.memory_bytes = 1000;
  const std::unique_ptr<Device> device = on_host::NewDeviceOnHost(options);
  const absl::Status status = LanePool::Create(*device, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("of 1000 are free"), std::string::npos) << status;
}

}  // namespace
}  // namespace kaon::kernels::cuda
