#include "client/transport/event_loop.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "client/kaon/future.h"

namespace kaon::client {
namespace {

TEST(EventLoopTest, RunsTasksInOrder) {
  EventLoop loop;
  std::vector<int> ran;
  Promise<Done> last;
  for (int i = 0; i < 3; ++i) loop.Post([&ran, i] { ran.push_back(i); });
  loop.Post([&last] { last.Set(Done()); });
  ASSERT_TRUE(last.future().Get().ok());
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2}));
}

TEST(EventLoopTest, RunsTimersInTheOrderOfTheirTimes) {
  EventLoop loop;
  std::vector<int> ran;
  Promise<Done> last;
  const absl::Time now = EventLoop::Now();
  loop.PostAt(now + absl::Milliseconds(20), [&] {
    ran.push_back(2);
    last.Set(Done());
  });
  loop.PostAt(now + absl::Milliseconds(5), [&ran] { ran.push_back(1); });
  ASSERT_TRUE(last.future().Get().ok());
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
  EXPECT_GE(EventLoop::Now() - now, absl::Milliseconds(20));
}

TEST(EventLoopTest, DoesNotRunACancelledTimer) {
  EventLoop loop;
  bool ran = false;
  Promise<Done> last;
  // From a task: the timer is due, and cannot run before.
  loop.Post([&] {
    const absl::Time now = EventLoop::Now();
    const EventLoop::Timer timer = loop.PostAt(now, [&ran] { ran = true; });
    loop.Cancel(timer);
    loop.PostAt(now, [&last] { last.Set(Done()); });
  });
  ASSERT_TRUE(last.future().Get().ok());
  EXPECT_FALSE(ran);
}

TEST(EventLoopDeathTest, EndsTheProcessWhenATaskWouldWaitForTheLoop) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EventLoop idle;
  idle.CheckNotOnLoop("waited");
  EXPECT_DEATH(
      {
        EventLoop loop;
        const Promise<Done> ended;
        loop.Post([&] {
          idle.CheckNotOnLoop("waited for another");
          loop.CheckNotOnLoop("waited");
          ended.Set(Done());
        });
        (void)ended.future().Get();
      },
      "waited inside a callback");
}

TEST(EventLoopTest, DropsTasksAfterStopAndWhatTheyOwn) {
  EventLoop loop;
  loop.Stop();
  auto owned = std::make_shared<int>(0);
  bool ran = false;
  loop.Post([owned, &ran] { ran = true; });
  loop.PostAt(EventLoop::Now(), [owned, &ran] { ran = true; });
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace kaon::client
