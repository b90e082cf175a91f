#include "server/monitor/metrics/sampler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "server/monitor/metrics/published.h"

namespace kaon::metrics {
namespace {

TEST(SamplerTest, CallsAtOnceAndAgain) {
  std::atomic<int> calls{0};
  Sampler sampler([&calls] { ++calls; }, absl::Milliseconds(1));
  while (calls < 3) std::this_thread::yield();
  sampler.Stop();
  const int stopped = calls;
  std::this_thread::yield();
  EXPECT_EQ(calls, stopped);
}

TEST(SamplerTest, StopsDuringALongPause) {
  std::atomic<int> calls{0};
  Sampler sampler([&calls] { ++calls; }, absl::Hours(1));
  while (calls == 0) std::this_thread::yield();
}

TEST(PublishedTest, HasTheNewestValue) {
  Published<std::string> value;
  EXPECT_EQ(value.Get(), nullptr);
  EXPECT_EQ(value.Age(), absl::InfiniteDuration());
  uint64_t version = 0;
  EXPECT_FALSE(value.AwaitNext(&version, SteadyNow()));
  value.Set("a");
  EXPECT_TRUE(value.AwaitNext(&version, absl::InfiniteFuture()));
  EXPECT_FALSE(value.AwaitNext(&version, SteadyNow()));
  std::thread writer([&value] { value.Set("b"); });
  EXPECT_TRUE(value.AwaitNext(&version, absl::InfiniteFuture()));
  writer.join();
  EXPECT_EQ(*value.Get(), "b");
  EXPECT_LT(value.Age(), absl::Hours(1));
}

}  // namespace
}  // namespace kaon::metrics
