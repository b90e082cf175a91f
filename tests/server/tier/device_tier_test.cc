#include "server/tier/device_tier.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/conformance/state_tier_conformance.h"
#include "tests/server/shard/device/fake_device_backend.h"

namespace kaon::tier {
namespace {

std::unique_ptr<shard::FakeDeviceBackend> NewBackend() {
  return std::make_unique<shard::FakeDeviceBackend>(kernels::CreateBackend({}).value());
}

// A tier with the backend that it allocates from.
class OwningTier : public StateTier {
 public:
  explicit OwningTier(uint64_t capacity_bytes) : tier_(*backend_, capacity_bytes) {}

  absl::string_view name() const override { return tier_.name(); }
  absl::StatusOr<ExtentId> Allocate(uint64_t bytes) override { return tier_.Allocate(bytes); }
  absl::Status Free(ExtentId extent) override { return tier_.Free(extent); }
  absl::StatusOr<kernels::Region> Memory(ExtentId extent) override { return tier_.Memory(extent); }
  absl::Status Load(ExtentId extent, uint64_t offset, absl::Span<std::byte> to) override {
    return tier_.Load(extent, offset, to);
  }
  absl::Status Store(ExtentId extent, uint64_t offset, absl::Span<const std::byte> from) override {
    return tier_.Store(extent, offset, from);
  }
  absl::Status Claim(uint64_t bytes) override { return tier_.Claim(bytes); }
  void Release(uint64_t bytes) override { tier_.Release(bytes); }
  uint64_t capacity_bytes() const override { return tier_.capacity_bytes(); }
  uint64_t used_bytes() const override { return tier_.used_bytes(); }

 private:
  std::unique_ptr<shard::FakeDeviceBackend> backend_ = NewBackend();
  DeviceTier tier_;
};

struct DeviceTierFactory {
  static std::unique_ptr<StateTier> Create(uint64_t capacity_bytes) {
    return std::make_unique<OwningTier>(capacity_bytes);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(DeviceTier, StateTierConformance, DeviceTierFactory);

TEST(DeviceTierTest, GivesMemoryOfTheDevice) {
  const auto backend = NewBackend();
  DeviceTier tier(*backend, 1024);
  EXPECT_EQ(tier.name(), "device");
  const kernels::Region memory = *tier.Memory(*tier.Allocate(100));
  EXPECT_EQ(memory.space(), kernels::Space::kDevice);
  EXPECT_EQ(memory.size(), kDeviceAlignmentBytes);
}

TEST(DeviceTierTest, NamesTheDeviceAndTheFlag) {
  const auto backend = NewBackend();
  DeviceTier tier(*backend, 1024);
  EXPECT_EQ(tier.Allocate(2000).status().message(),
            "device memory of fake:0: 2000 bytes needed, 1024 free = 1024 capacity - 0 in use: "
            "raise --device-memory-bytes or add shards");
  backend->SetFull(true);
  const absl::Status status = tier.Allocate(512).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "device memory of fake:0: 512 bytes needed, 0 free; 1024 are free of 1024 capacity: "
            "lower --device-memory-bytes");
  EXPECT_EQ(tier.used_bytes(), 0u);
}

}  // namespace
}  // namespace kaon::tier
