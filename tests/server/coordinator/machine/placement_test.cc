#include "server/coordinator/machine/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

namespace kaon::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<PlacementItem> MixedSizes() {
  // Embeddings, matrices and biases of a small transformer, in cost units.
  std::mt19937_64 random(7);
  std::vector<PlacementItem> items;
  for (double cost : {5000.0, 5000.0}) items.push_back({"embedding", cost, 1000});
  for (int i = 0; i < 48; ++i) items.push_back({"matrix", 1000.0 + random() % 500, 100});
  for (int i = 0; i < 200; ++i) items.push_back({"bias", 1.0 + random() % 9, 1});
  return items;
}

std::vector<double> Loads(const std::vector<PlacementItem>& items, const std::vector<int>& shard_of,
                          int num_shards) {
  std::vector<double> loads(num_shards, 0);
  for (size_t i = 0; i < items.size(); ++i) loads[shard_of[i]] += items[i].cost;
  return loads;
}

// Edge 48: also after a restart, which places anew.
TEST(PlacementTest, SameItemsAlwaysGoToTheSameShards) {
  const auto first = PlaceParameters(MixedSizes(), {4, 0});
  const auto second = PlaceParameters(MixedSizes(), {4, 0});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, *second);
}

// Edge 48.
TEST(PlacementTest, BalancesMixedSizesWithinTwoPercentOfTheMean) {
  for (int num_shards : {2, 3, 4, 7}) {
    const auto shard_of = PlaceParameters(MixedSizes(), {num_shards, 0});
    ASSERT_TRUE(shard_of.ok());
    const std::vector<double> loads = Loads(MixedSizes(), *shard_of, num_shards);
    const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / num_shards;
    EXPECT_LE(*std::max_element(loads.begin(), loads.end()) / mean, 1.02) << num_shards;
  }
}

TEST(PlacementTest, BreaksTiesByParameterThenByShard) {
  const std::vector<PlacementItem> items(5, {"p", 1.0, 1});
  const auto shard_of = PlaceParameters(items, {3, 0});
  ASSERT_TRUE(shard_of.ok());
  EXPECT_THAT(*shard_of, ElementsAre(0, 1, 2, 0, 1));
}

// [P2], edges 16 and 27: nothing is padded to fill the shards.
TEST(PlacementTest, FewerParametersThanShardsLeavesShardsEmpty) {
  const auto shard_of = PlaceParameters({{"a", 2, 1}, {"b", 3, 1}}, {7, 0});
  ASSERT_TRUE(shard_of.ok());
  EXPECT_THAT(*shard_of, ElementsAre(1, 0));
}

TEST(PlacementTest, PrefersRoomOverBalance) {
  // The second item is the costliest, and fills shard 0; nothing else fits there.
  const auto shard_of = PlaceParameters({{"a", 1, 10}, {"b", 5, 95}, {"c", 4.5, 10}}, {2, 100});
  ASSERT_TRUE(shard_of.ok());
  EXPECT_THAT(*shard_of, ElementsAre(1, 0, 1));
}

TEST(PlacementTest, RefusesAMatrixLargerThanAShardWithTheArithmetic) {
  const auto shard_of = PlaceParameters({{"small", 1, 5}, {"wte", 9, 101}}, {2, 100});
  EXPECT_EQ(shard_of.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(shard_of.status().message(), HasSubstr("wte needs 101 bytes"));
  EXPECT_THAT(shard_of.status().message(), HasSubstr("capacity of a shard is 100"));
}

TEST(PlacementTest, RefusesWhatNoLongerFitsWithTheArithmetic) {
  const auto shard_of = PlaceParameters({{"a", 3, 60}, {"b", 2, 60}, {"c", 1, 60}}, {2, 100});
  EXPECT_EQ(shard_of.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(shard_of.status().message(), HasSubstr("c needs 60 bytes"));
  EXPECT_THAT(shard_of.status().message(), HasSubstr("has 40 of 100 left"));
}

}  // namespace
}  // namespace kaon::coordinator
