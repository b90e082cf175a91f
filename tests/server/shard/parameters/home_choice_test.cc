#include "server/shard/parameters/home_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kaon::shard {
namespace {

using testing::ElementsAre;

TEST(HomeChoiceTest, NothingIsOnTheDiskIfAllFits) {
  EXPECT_THAT(ChooseDisk({{16, 24}, {8, 0}}, 24), ElementsAre(false, false));
}

// AdamW moves 24 bytes for 16 that it holds, Muon 16 for 12, and a frozen parameter none.
TEST(HomeChoiceTest, MemoryGoesToThoseThatWouldMoveMostPerByte) {
  EXPECT_THAT(ChooseDisk({{4, 0}, {12, 16}, {16, 24}}, 20), ElementsAre(false, true, false));
  EXPECT_THAT(ChooseDisk({{4, 0}, {12, 16}, {16, 24}}, 28), ElementsAre(true, false, false));
  EXPECT_THAT(ChooseDisk({{4, 0}, {12, 16}, {16, 24}}, 3), ElementsAre(true, true, true));
}

TEST(HomeChoiceTest, WishesAreMetFirst) {
  EXPECT_THAT(ChooseDisk({{16, 24}, {16, 24, HomeWish::kMemory}, {16, 24, HomeWish::kDisk}}, 20),
              ElementsAre(true, false, true));
  EXPECT_THAT(ChooseDisk({{16, 24, HomeWish::kMemory}, {4, 0}}, 3), ElementsAre(false, true));
}

TEST(HomeChoiceTest, EqualRatiosAreKeptInTheirOrder) {
  EXPECT_THAT(ChooseDisk({{16, 24}, {32, 48}, {16, 24}}, 33), ElementsAre(false, true, false));
  EXPECT_THAT(ChooseDisk({{16, 24}, {32, 48}, {16, 24}}, 48), ElementsAre(false, false, true));
}

}  // namespace
}  // namespace kaon::shard
