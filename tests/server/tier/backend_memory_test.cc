#include "server/tier/backend_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tests/server/shard/device/fake_device_backend.h"

namespace kaon::tier {
namespace {

using kernels::Space;

TEST(BackendMemoryTest, OfAHostIsTheHosts) {
  const std::unique_ptr<kernels::Backend> backend = kernels::CreateBackend({}).value();
  const BackendMemory memory = BackendMemory::Allocate(*backend, 100).value();
  EXPECT_EQ(memory.region().host_bytes().size(), 100u);
}

// The backend CHECKs that everything is freed, and as what it was allocated.
TEST(BackendMemoryTest, IsFreedByItsLastOwner) {
  shard::FakeDeviceBackend backend(kernels::CreateBackend({}).value());
  BackendMemory memory = BackendMemory::Allocate(backend, 100).value();
  EXPECT_EQ(memory.region().space(), Space::kDevice);
  BackendMemory moved = std::move(memory);
  EXPECT_EQ(moved.region().size(), 100u);
  moved = BackendMemory::AllocateStaging(backend, 50).value();
  EXPECT_EQ(moved.region().host_bytes().size(), 50u);
  EXPECT_EQ(backend.staging_bytes(), 50u);
  moved = {};
  EXPECT_EQ(backend.staging_bytes(), 0u);
}

TEST(BackendMemoryTest, ReturnsTheBackendsRefusal) {
  shard::FakeDeviceBackend backend(kernels::CreateBackend({}).value());
  backend.SetFull(true);
  EXPECT_EQ(BackendMemory::Allocate(backend, 100).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace kaon::tier
