#include "server/config/log_facts.h"

#include <gtest/gtest.h>

#include <thread>

namespace kaon::config {
namespace {

TEST(LogFactsTest, StepStaysOverOtherEntriesOfItsJob) {
  SetLogJob("a", 7);
  SetLogJob("a", std::nullopt);
  EXPECT_EQ(CurrentLogFacts().job, "a");
  EXPECT_EQ(CurrentLogFacts().step, 7u);
  SetLogJob("b", std::nullopt);
  EXPECT_FALSE(CurrentLogFacts().step.has_value());
  SetLogJob("b", 1);
  SetLogJob("", 2);
  EXPECT_EQ(CurrentLogFacts().job, "");
  EXPECT_FALSE(CurrentLogFacts().step.has_value());
}

TEST(LogFactsTest, ShardIsOfTheProcess) {
  std::thread([] { SetLogShard(3); }).join();
  EXPECT_EQ(CurrentLogFacts().shard, 3u);
}

TEST(LogFactsTest, PeerIsOfTheThreadAndTheScope) {
  const LogPeer outer("a");
  {
    const LogPeer inner("b");
    EXPECT_EQ(CurrentLogFacts().peer, "b");
    std::thread([] { EXPECT_EQ(CurrentLogFacts().peer, ""); }).join();
  }
  EXPECT_EQ(CurrentLogFacts().peer, "a");
}

}  // namespace
}  // namespace kaon::config
