#include "server/tier/host_tier.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "tests/conformance/state_tier_conformance.h"
#include "tests/kernels/forwarding_backend.h"

namespace kaon::tier {
namespace {

struct HostTierFactory {
  static std::unique_ptr<StateTier> Create(uint64_t capacity_bytes) {
    return std::make_unique<HostTier>(capacity_bytes);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(HostTier, StateTierConformance, HostTierFactory);

TEST(HostTierTest, AlignsEveryExtent) {
  HostTier tier(1 << 12);
  for (uint64_t bytes : {1, 63, 64, 65, 200}) {
    const ExtentId extent = *tier.Allocate(bytes);
    const auto address = reinterpret_cast<uintptr_t>(tier.Memory(extent)->host_bytes().data());
    EXPECT_EQ(address % kHostAlignmentBytes, 0u) << bytes;
  }
  EXPECT_EQ(tier.used_bytes(), 64u + 64 + 64 + 128 + 256);
}

TEST(HostTierTest, TakesTheMemoryOfABackend) {
  class CountingBackend final : public kernels::ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    absl::StatusOr<kernels::Region> Allocate(uint64_t bytes) override {
      allocated_bytes += bytes;
      return ForwardingBackend::Allocate(bytes);
    }
    void Free(kernels::Region region) override {
      allocated_bytes -= region.size();
      ForwardingBackend::Free(region);
    }
    uint64_t allocated_bytes = 0;
  };
  CountingBackend backend(kernels::CreateBackend({}).value());
  {
    HostTier tier(backend, 1024, 512);
    const ExtentId extent = *tier.Allocate(256);
    EXPECT_EQ(tier.used_bytes(), 768u);
    EXPECT_EQ(tier.Allocate(512).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(backend.allocated_bytes, 256u);
    EXPECT_TRUE(tier.Free(extent).ok());
    EXPECT_EQ(backend.allocated_bytes, 0u);
    EXPECT_TRUE(tier.Allocate(64).ok());
  }
  EXPECT_EQ(backend.allocated_bytes, 0u);
}

TEST(HostTierTest, GivesTheMemoryThatLoadReads) {
  HostTier tier(64);
  const ExtentId extent = *tier.Allocate(64);
  tier.Memory(extent)->host_bytes()[5] = std::byte{42};
  std::byte loaded{0};
  ASSERT_TRUE(tier.Load(extent, 5, absl::MakeSpan(&loaded, 1)).ok());
  EXPECT_EQ(loaded, std::byte{42});
  EXPECT_EQ(tier.Memory(extent + 1).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace kaon::tier
