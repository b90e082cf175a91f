#include "server/tier/tiered_store.h"

#include <gtest/gtest.h>

#include <utility>

#include "server/tier/host_tier.h"

namespace kaon::tier {
namespace {

class TieredStoreTest : public testing::Test {
 protected:
  TieredStoreTest() : host_(1024), store_(host_) {}

  HostTier host_;
  TieredStore store_;
};

TEST_F(TieredStoreTest, PinsATensorOfItsOwnSizeThatStartsAtZero) {
  ASSERT_TRUE(store_.Allocate("w", 5).ok());
  const absl::StatusOr<Pin> pin = store_.Pin("w");
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ(pin->region().size(), 20u);
  for (float value : pin->region().host_floats()) EXPECT_EQ(value, 0);
}

TEST_F(TieredStoreTest, KeepsWhatWasWrittenBetweenPins) {
  ASSERT_TRUE(store_.Allocate("w", 5).ok());
  store_.Pin("w")->region().host_floats()[3] = 2.5;
  ASSERT_TRUE(store_.Prefetch("w").ok());
  EXPECT_EQ(store_.Pin("w")->region().host_floats()[3], 2.5);
}

TEST_F(TieredStoreTest, FreesNothingThatIsPinned) {
  ASSERT_TRUE(store_.Allocate("w", 5).ok());
  Pin pin = *store_.Pin("w");
  Pin moved = std::move(pin);
  const absl::Status status = store_.Free("w");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "tensor w is pinned 1 times, expecting 0");
  moved = Pin();
  EXPECT_TRUE(store_.Free("w").ok());
  EXPECT_EQ(store_.used_bytes(), 0u);
}

TEST_F(TieredStoreTest, RefusesANameInUseAndNamesThatAreNot) {
  ASSERT_TRUE(store_.Allocate("w", 5).ok());
  EXPECT_EQ(store_.Allocate("w", 5).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(store_.Pin("b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_.Free("b").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_.Prefetch("b").code(), absl::StatusCode::kNotFound);
}

TEST_F(TieredStoreTest, NamesTheTensorThatDoesNotFit) {
  ASSERT_TRUE(store_.Allocate("w", 128).ok());
  const absl::Status status = store_.Allocate("momentum_buffer/7", 200);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "tensor momentum_buffer/7: host memory: 800 bytes needed, 512 free = 1024 capacity - "
            "512 in use: raise --host-memory-bytes or add shards");
  EXPECT_EQ(store_.Allocate("x", ~uint64_t{0} / 2).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store_.used_bytes(), 512u);
}

}  // namespace
}  // namespace kaon::tier
