#include "server/tier/host_tier.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "tests/conformance/state_tier_conformance.h"

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
    const auto address = reinterpret_cast<uintptr_t>(tier.Memory(extent)->data());
    EXPECT_EQ(address % kHostAlignmentBytes, 0u) << bytes;
  }
  EXPECT_EQ(tier.used_bytes(), 64u + 64 + 64 + 128 + 256);
}

TEST(HostTierTest, GivesTheMemoryThatLoadReads) {
  HostTier tier(64);
  const ExtentId extent = *tier.Allocate(64);
  (*tier.Memory(extent))[5] = std::byte{42};
  std::byte loaded{0};
  ASSERT_TRUE(tier.Load(extent, 5, absl::MakeSpan(&loaded, 1)).ok());
  EXPECT_EQ(loaded, std::byte{42});
  EXPECT_EQ(tier.Memory(extent + 1).status().code(), absl::StatusCode::kNotFound);
}

TEST(HostTierTest, CountsWhatIsInUseElsewhere) {
  HostTier tier(1024, 896);
  EXPECT_EQ(tier.used_bytes(), 896u);
  EXPECT_TRUE(tier.Allocate(128).ok());
  const absl::Status status = tier.Allocate(1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "host memory: 1 bytes needed, 0 free = 1024 capacity - 1024 in use");
}

TEST(HostTierTest, CountsWhatIsClaimed) {
  HostTier tier(1024);
  ASSERT_TRUE(tier.Claim(1000).ok());
  EXPECT_EQ(tier.used_bytes(), 1000u);
  const absl::Status status = tier.Claim(25);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "host memory: 25 bytes needed, 24 free = 1024 capacity - 1000 in use");
  EXPECT_EQ(tier.Allocate(24).status().code(), absl::StatusCode::kResourceExhausted);
  tier.Release(1000);
  EXPECT_EQ(tier.used_bytes(), 0u);
  EXPECT_TRUE(tier.Allocate(1024).ok());
}

}  // namespace
}  // namespace kaon::tier
