#include "server/shard/parameters/home_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kaon::shard {
namespace {

using testing::ElementsAre;

constexpr HomePlace kMemory = HomePlace::kMemory;
constexpr HomePlace kNoState = HomePlace::kDiskWithoutState;
constexpr HomePlace kDisk = HomePlace::kDisk;
// They are the needs of one element.
constexpr HomeNeeds kAdamW = {8, 12, 16};
constexpr HomeNeeds kMuon = {4, 12, 16};
constexpr HomeNeeds kSgd = {0, 12, 16};
constexpr HomeNeeds kFrozen = {0, 8, 0};

TEST(HomeChoiceTest, NothingIsOnTheDiskIfAllFits) {
  EXPECT_THAT(ChoosePlaces({kAdamW, kFrozen, kMuon}, 44), ElementsAre(kMemory, kMemory, kMemory));
}

TEST(HomeChoiceTest, MemoryGoesToStateFirstThenToWeightsAndToFrozenWeightsLast) {
  EXPECT_THAT(ChoosePlaces({kFrozen, kAdamW, kMuon}, 43), ElementsAre(kDisk, kMemory, kMemory));
  EXPECT_THAT(ChoosePlaces({kFrozen, kAdamW, kMuon}, 24), ElementsAre(kDisk, kMemory, kNoState));
  EXPECT_THAT(ChoosePlaces({kFrozen, kAdamW, kMuon}, 12), ElementsAre(kDisk, kNoState, kNoState));
  EXPECT_THAT(ChoosePlaces({kFrozen, kAdamW, kMuon}, 11), ElementsAre(kDisk, kNoState, kDisk));
  EXPECT_THAT(ChoosePlaces({kFrozen, kAdamW, kMuon}, 3), ElementsAre(kDisk, kDisk, kDisk));
}

TEST(HomeChoiceTest, WeightsAreNotInMemoryWithoutTheirState) {
  EXPECT_THAT(ChoosePlaces({{16, 12, 16}, kSgd}, 15), ElementsAre(kDisk, kMemory));
}

TEST(HomeChoiceTest, WishesAreMetFirst) {
  HomeNeeds memory = kAdamW;
  memory.wish = HomeWish::kMemory;
  HomeNeeds disk = kAdamW;
  disk.wish = HomeWish::kDisk;
  EXPECT_THAT(ChoosePlaces({kAdamW, memory, disk}, 28), ElementsAre(kNoState, kMemory, kDisk));
  EXPECT_THAT(ChoosePlaces({memory, kFrozen}, 3), ElementsAre(kMemory, kDisk));
}

TEST(HomeChoiceTest, EqualRatiosAreKeptInTheirOrder) {
  EXPECT_THAT(ChoosePlaces({kSgd, {0, 24, 32}, kSgd}, 25), ElementsAre(kMemory, kDisk, kMemory));
  EXPECT_THAT(ChoosePlaces({kSgd, {0, 24, 32}, kSgd}, 36), ElementsAre(kMemory, kMemory, kDisk));
}

}  // namespace
}  // namespace kaon::shard
