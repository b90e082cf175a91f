#include "server/coordinator/trace/trace_sender.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/server/coordinator/trace/trace_collector.h"

namespace kaon::coordinator {
namespace {

std::vector<TraceSpan> Spans(int n) { return std::vector<TraceSpan>(n); }

TEST(TraceSenderTest, SendsSpansInTheNameOfTheService) {
  testing::TraceCollector collector;
  TraceSender sender(collector.address(), "kaon");
  sender.Send(Spans(3));
  const auto requests = collector.Await(3);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].resource_spans(0).resource().attributes(0).ShortDebugString(),
            "key: \"service.name\" value { string_value: \"kaon\" }");
  while (sender.num_sent() < 3) std::this_thread::yield();
  EXPECT_EQ(sender.num_lost(), 0u);
}

TEST(TraceSenderTest, LosesSpansWithoutACollectorAndDoesNotWait) {
  TraceSender sender("127.0.0.1:1", "kaon");
  for (int i = 0; i < 100; ++i) sender.Send(Spans(1));
  while (sender.num_lost() < 100) std::this_thread::yield();
  EXPECT_EQ(sender.num_sent(), 0u);
}

TEST(TraceSenderTest, EndsWhileTheCollectorIsSilent) {
  testing::TraceCollector collector;
  collector.Hold();
  {
    TraceSender sender(collector.address(), "kaon");
    sender.Send(Spans(1));
    collector.AwaitCall();
  }
  collector.Release();
}

TEST(TraceSenderTest, SendsToLoopbackAlone) {
  EXPECT_TRUE(TraceSender::CheckAddress("").ok());
  EXPECT_TRUE(TraceSender::CheckAddress("localhost:4317").ok());
  EXPECT_EQ(TraceSender::CheckAddress("10.0.0.1:4317").message(),
            "traces_address is \"10.0.0.1:4317\", must be host:port on loopback, where a collector "
            "forwards the traces");
}

}  // namespace
}  // namespace kaon::coordinator
