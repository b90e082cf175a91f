// The conformance suite of StateTier. The test of each tier instantiates it:
//   INSTANTIATE_TYPED_TEST_SUITE_P(HostTier, StateTierConformance, HostTierFactory);
// where the factory has static std::unique_ptr<StateTier> Create(uint64_t capacity_bytes). One
// thread.
#ifndef KAON_TESTS_CONFORMANCE_STATE_TIER_CONFORMANCE_H_
#define KAON_TESTS_CONFORMANCE_STATE_TIER_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "server/tier/state_tier.h"

namespace kaon::tier {

template <typename Factory>
class StateTierConformance : public testing::Test {
 protected:
  static constexpr uint64_t kCapacityBytes = 1 << 16;

  static std::vector<std::byte> Pattern(size_t size) {
    std::vector<std::byte> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
    return bytes;
  }

  std::unique_ptr<StateTier> tier_ = Factory::Create(kCapacityBytes);
};

TYPED_TEST_SUITE_P(StateTierConformance);

// Bytes come back as they were stored ([P3]).
TYPED_TEST_P(StateTierConformance, LoadsWhatWasStoredAtAnyOffset) {
  const ExtentId extent = *this->tier_->Allocate(1000);
  const std::vector<std::byte> stored = this->Pattern(100);
  ASSERT_TRUE(this->tier_->Store(extent, 900, stored).ok());
  std::vector<std::byte> loaded(100);
  ASSERT_TRUE(this->tier_->Load(extent, 900, absl::MakeSpan(loaded)).ok());
  EXPECT_EQ(loaded, stored);
}

TYPED_TEST_P(StateTierConformance, StartsAtZeroAlsoWhereSomethingWasFreed) {
  for (int i = 0; i < 2; ++i) {
    const ExtentId extent = *this->tier_->Allocate(this->kCapacityBytes);
    std::vector<std::byte> loaded(this->kCapacityBytes, std::byte{1});
    ASSERT_TRUE(this->tier_->Load(extent, 0, absl::MakeSpan(loaded)).ok());
    EXPECT_EQ(loaded, std::vector<std::byte>(this->kCapacityBytes));
    ASSERT_TRUE(this->tier_->Store(extent, 0, this->Pattern(this->kCapacityBytes)).ok());
    ASSERT_TRUE(this->tier_->Free(extent).ok());
  }
}

TYPED_TEST_P(StateTierConformance, CountsWhatIsInUse) {
  EXPECT_EQ(this->tier_->capacity_bytes(), this->kCapacityBytes);
  EXPECT_EQ(this->tier_->used_bytes(), 0u);
  const ExtentId extent = *this->tier_->Allocate(1000);
  EXPECT_GE(this->tier_->used_bytes(), 1000u);
  ASSERT_TRUE(this->tier_->Free(extent).ok());
  EXPECT_EQ(this->tier_->used_bytes(), 0u);
}

TYPED_TEST_P(StateTierConformance, RefusesWhatDoesNotFitWithTheArithmetic) {
  ASSERT_TRUE(this->tier_->Allocate(this->kCapacityBytes / 2).ok());
  for (uint64_t bytes : {this->kCapacityBytes / 2 + 1, this->kCapacityBytes, ~uint64_t{0}}) {
    const absl::Status status = this->tier_->Allocate(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("65536 capacity"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("32768 free"), absl::string_view::npos) << status;
  }
  EXPECT_TRUE(this->tier_->Allocate(this->kCapacityBytes / 2).ok());
}

TYPED_TEST_P(StateTierConformance, RefusesAnEmptyExtent) {
  EXPECT_EQ(this->tier_->Allocate(0).status().code(), absl::StatusCode::kInvalidArgument);
}

TYPED_TEST_P(StateTierConformance, RefusesAccessBeyondAnExtent) {
  const ExtentId extent = *this->tier_->Allocate(1024);
  std::vector<std::byte> bytes(1025);
  EXPECT_EQ(this->tier_->Load(extent, 0, absl::MakeSpan(bytes)).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(this->tier_->Store(extent, ~uint64_t{0}, bytes).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(this->tier_->Store(extent, 1024, {}).ok());
}

TYPED_TEST_P(StateTierConformance, KnowsNoFreedExtent) {
  const ExtentId extent = *this->tier_->Allocate(64);
  ASSERT_TRUE(this->tier_->Free(extent).ok());
  std::vector<std::byte> bytes(1);
  EXPECT_EQ(this->tier_->Free(extent).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(this->tier_->Load(extent, 0, absl::MakeSpan(bytes)).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(this->tier_->Store(extent, 0, bytes).code(), absl::StatusCode::kNotFound);
}

REGISTER_TYPED_TEST_SUITE_P(StateTierConformance, LoadsWhatWasStoredAtAnyOffset,
                            StartsAtZeroAlsoWhereSomethingWasFreed, CountsWhatIsInUse,
                            RefusesWhatDoesNotFitWithTheArithmetic, RefusesAnEmptyExtent,
                            RefusesAccessBeyondAnExtent, KnowsNoFreedExtent);

}  // namespace kaon::tier

#endif  // KAON_TESTS_CONFORMANCE_STATE_TIER_CONFORMANCE_H_
