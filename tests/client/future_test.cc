#include "client/kaon/future.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>

namespace kaon {
namespace {

TEST(FutureTest, HandsTheResultOver) {
  const Promise<std::string> promise;
  Future<std::string> future = promise.future();
  EXPECT_FALSE(future.Ready());
  EXPECT_TRUE(promise.Set(std::string("there")));
  EXPECT_TRUE(future.Ready());
  EXPECT_EQ(future.Get().value(), "there");
}

TEST(FutureTest, CountsTheFirstResultOnly) {
  const Promise<int> promise;
  EXPECT_TRUE(promise.Set(1));
  EXPECT_FALSE(promise.Set(2));
  EXPECT_EQ(promise.future().Get().value(), 1);
}

TEST(FutureTest, WaitsForAnotherThread) {
  Promise<int> promise;
  Future<int> future = promise.future();
  std::thread producer([promise = std::move(promise)] { promise.Set(7); });
  EXPECT_EQ(future.Get().value(), 7);
  producer.join();
}

TEST(FutureTest, SaysWhenTheResultWasNotThereInTime) {
  const Promise<int> promise;
  EXPECT_FALSE(promise.future().WaitFor(std::chrono::milliseconds(1)));
  promise.Set(1);
  EXPECT_TRUE(promise.future().WaitFor(std::chrono::milliseconds(1)));
}

TEST(FutureTest, TheLongestTimeoutsOfAnyUnitDoNotOverflow) {
  const auto wait = [](auto longest) {
    const Promise<int> promise;
    std::promise<void> waiting;
    std::thread setter([&] {
      waiting.get_future().wait();
      promise.Set(1);
    });
    waiting.set_value();
    EXPECT_TRUE(promise.future().WaitFor(longest));
    setter.join();
  };
  wait(std::chrono::nanoseconds::max());
  wait(std::chrono::milliseconds::max());
  wait(std::chrono::hours::max());
}

TEST(FutureTest, CancelsOnce) {
  const Promise<int> promise;
  Future<int> future = promise.future();
  int cancelled = 0;
  promise.OnCancel([&cancelled] { ++cancelled; });
  future.Cancel();
  future.Cancel();
  EXPECT_EQ(cancelled, 1);
}

TEST(FutureTest, DoesNotCancelWhatHasAResult) {
  const Promise<int> promise;
  int cancelled = 0;
  promise.OnCancel([&cancelled] { ++cancelled; });
  promise.Set(1);
  promise.future().Cancel();
  promise.OnCancel([&cancelled] { ++cancelled; });
  promise.future().Cancel();
  EXPECT_EQ(cancelled, 0);
}

TEST(FutureTest, ThenTakesAResultThatComesLater) {
  const Promise<int> promise;
  Future<std::string> next =
      promise.future().Then([](Result<int> result) { return std::to_string(result.value() + 1); });
  EXPECT_FALSE(next.Ready());
  promise.Set(1);
  EXPECT_EQ(next.Get().value(), "2");
}

TEST(FutureTest, ThenTakesAResultThatIsThere) {
  const Promise<int> promise;
  promise.Set(1);
  int heard = 0;
  Future<Done> next =
      promise.future().Then([&heard](const Result<int>& result) { heard = result.value(); });
  EXPECT_TRUE(next.Ready());
  EXPECT_EQ(heard, 1);
}

TEST(FutureTest, ThenPassesErrorsOn) {
  const Promise<int> promise;
  promise.Set(Status(StatusCode::kAborted, "taken"));
  Future<int> next = promise.future().Then([](Result<int> result) { return result; });
  EXPECT_EQ(next.Get().status().ToString(), "ABORTED: taken");
}

TEST(FutureTest, CancelOfThenReachesTheOperation) {
  const Promise<int> promise;
  int cancelled = 0;
  promise.OnCancel([&cancelled] { ++cancelled; });
  Future<int> next = promise.future().Then([](Result<int> result) { return result; });
  next.Cancel();
  EXPECT_EQ(cancelled, 1);
}

}  // namespace
}  // namespace kaon
