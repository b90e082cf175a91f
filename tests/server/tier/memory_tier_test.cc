#include "server/tier/memory_tier.h"

#include <gtest/gtest.h>

#include "server/tier/host_tier.h"

namespace kaon::tier {
namespace {

TEST(MemoryTierTest, CountsWhatIsInUseElsewhere) {
  HostTier tier(1024, 896);
  EXPECT_EQ(tier.used_bytes(), 896u);
  EXPECT_TRUE(tier.Allocate(128).ok());
  const absl::Status status = tier.Allocate(1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "host memory: 1 bytes needed, 0 free = 1024 capacity - 1024 in use: "
            "raise --host-memory-bytes or add shards");
}

TEST(MemoryTierTest, CountsWhatIsClaimed) {
  HostTier tier(1024);
  ASSERT_TRUE(tier.Claim(1000).ok());
  EXPECT_EQ(tier.used_bytes(), 1000u);
  const absl::Status status = tier.Claim(25);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "host memory: 25 bytes needed, 24 free = 1024 capacity - 1000 in use: "
            "raise --host-memory-bytes or add shards");
  EXPECT_EQ(tier.Allocate(24).status().code(), absl::StatusCode::kResourceExhausted);
  tier.Release(1000);
  EXPECT_EQ(tier.used_bytes(), 0u);
  EXPECT_TRUE(tier.Allocate(1024).ok());
}

// Memory that the system lacks is counted no more.
TEST(MemoryTierTest, CountsNothingThatTheSystemRefused) {
  HostTier tier(uint64_t{1} << 62);
  const absl::Status status = tier.Allocate(uint64_t{1} << 61).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "host memory: the system refused 2305843009213693952 bytes; 4611686018427387904 are "
            "free of 4611686018427387904 capacity: lower --host-memory-bytes");
  EXPECT_EQ(tier.used_bytes(), 0u);
}

}  // namespace
}  // namespace kaon::tier
