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

TEST(LogFactsTest, TraceIsTheOneThatTheLowestRankNamesOfTheNewestBegunStep) {
  SetLogJob("traced", 1);
  SetLogTrace(2, 1, "b");
  SetLogTrace(2, 0, "");
  EXPECT_EQ(CurrentLogFacts().trace_id, "b");
  SetLogTrace(2, 0, "a");
  SetLogTrace(2, 1, "b");
  EXPECT_EQ(CurrentLogFacts().trace_id, "a");
  // The decision of a step ends nothing: its own lines come after.
  SetLogJob("traced", 2);
  EXPECT_EQ(CurrentLogFacts().trace_id, "a");
  // A step without a trace has none, and neither has another job.
  SetLogTrace(3, 1, "");
  EXPECT_EQ(CurrentLogFacts().trace_id, "");
  SetLogTrace(3, 2, "c");
  EXPECT_EQ(CurrentLogFacts().trace_id, "c");
  SetLogJob("untraced", std::nullopt);
  EXPECT_EQ(CurrentLogFacts().trace_id, "");
}

TEST(LogFactsTest, TraceOfACallIsOfTheThreadAndTheScope) {
  SetLogTrace(4, 0, "step");
  {
    const LogTrace call("call");
    const LogTrace unknown("");
    EXPECT_EQ(CurrentLogFacts().trace_id, "call");
    std::thread([] { EXPECT_EQ(CurrentLogFacts().trace_id, "step"); }).join();
  }
  EXPECT_EQ(CurrentLogFacts().trace_id, "step");
}

}  // namespace
}  // namespace kaon::config
