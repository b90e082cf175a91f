#include "server/shard/transport/shm_tokens.h"

#include <gtest/gtest.h>

#include <set>

namespace kaon::shard {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

proto::Identity Worker(uint32_t rank) {
  return {.domain = "d", .role = proto::Role::kWorker, .job = "gpt2", .rank = rank};
}

TEST(ShmTokensTest, AreGoodOnce) {
  ShmTokens tokens(absl::Seconds(10));
  const std::string token = tokens.Issue(Worker(3), kStart);
  EXPECT_EQ(tokens.Redeem(token, kStart)->rank, 3u);
  EXPECT_FALSE(tokens.Redeem(token, kStart).has_value());
}

TEST(ShmTokensTest, AreOfTheirOwnCallerOnly) {
  ShmTokens tokens(absl::Seconds(10));
  const std::string first = tokens.Issue(Worker(1), kStart);
  const std::string second = tokens.Issue(Worker(2), kStart);
  EXPECT_EQ(tokens.Redeem(second, kStart)->rank, 2u);
  EXPECT_EQ(tokens.Redeem(first, kStart)->rank, 1u);
}

TEST(ShmTokensTest, AreGoodForAShortTime) {
  ShmTokens tokens(absl::Seconds(10));
  const std::string token = tokens.Issue(Worker(3), kStart);
  EXPECT_EQ(tokens.Count(kStart + absl::Seconds(9)), 1u);
  EXPECT_EQ(tokens.Count(kStart + absl::Seconds(10)), 0u);
  EXPECT_FALSE(tokens.Redeem(token, kStart + absl::Seconds(10)).has_value());
}

TEST(ShmTokensTest, AreCountedForEachCaller) {
  ShmTokens tokens(absl::Seconds(10));
  const std::string first = tokens.Issue(Worker(1), kStart);
  tokens.Issue(Worker(1), kStart + absl::Seconds(1));
  tokens.Issue(Worker(2), kStart);
  EXPECT_EQ(tokens.CountOf(Worker(1), kStart + absl::Seconds(1)), 2u);
  EXPECT_EQ(tokens.CountOf(Worker(3), kStart + absl::Seconds(1)), 0u);
  tokens.Redeem(first, kStart + absl::Seconds(1));
  EXPECT_EQ(tokens.CountOf(Worker(1), kStart + absl::Seconds(1)), 1u);
  EXPECT_EQ(tokens.CountOf(Worker(1), kStart + absl::Seconds(11)), 0u);
}

TEST(ShmTokensTest, AreNotMadeUp) {
  ShmTokens tokens(absl::Seconds(10));
  std::string token = tokens.Issue(Worker(3), kStart);
  EXPECT_FALSE(tokens.Redeem("", kStart).has_value());
  EXPECT_FALSE(tokens.Redeem(token.substr(0, 31), kStart).has_value());
  token[31] ^= 1;
  EXPECT_FALSE(tokens.Redeem(token, kStart).has_value());
}

TEST(ShmTokensTest, Have256BitsThatDiffer) {
  ShmTokens tokens(absl::Seconds(10));
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(tokens.Issue(Worker(0), kStart));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_EQ(seen.begin()->size(), 32u);
}

}  // namespace
}  // namespace kaon::shard
