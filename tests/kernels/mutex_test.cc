#include "kernels/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace kaon {
namespace {

struct Counter {
  Mutex mu;
  CondVar changed;
  int value ABSL_GUARDED_BY(mu) = 0;
};

TEST(MutexTest, ExcludesOtherThreads) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counter] {
      for (int k = 0; k < 10000; ++k) {
        MutexLock lock(counter.mu);
        ++counter.value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(counter.mu);
  EXPECT_EQ(counter.value, 40000);
}

TEST(MutexTest, WaitReleasesTheMutexAndTakesItAgain) {
  Counter counter;
  std::thread setter([&counter] {
    MutexLock lock(counter.mu);
    counter.value = 1;
    counter.changed.NotifyAll();
  });
  {
    MutexLock lock(counter.mu);
    while (counter.value == 0) counter.changed.Wait(counter.mu);
    EXPECT_EQ(counter.value, 1);
  }
  setter.join();
}

TEST(MutexTest, WaitForSaysWhenTheTimeIsUp) {
  Counter counter;
  MutexLock lock(counter.mu);
  // Wakeups without a reason are allowed, so wait until the time is really up.
  while (counter.changed.WaitFor(counter.mu, absl::Milliseconds(1))) {
  }
  EXPECT_EQ(counter.value, 0);
}

TEST(MutexTest, WaitForSaysWhenItWasNotifiedHoweverLongItMayWait) {
  const absl::Duration longest_chrono = absl::FromChrono(std::chrono::milliseconds::max());
  for (const absl::Duration timeout :
       {absl::Minutes(1), longest_chrono, absl::InfiniteDuration()}) {
    Counter counter;
    std::thread setter;
    bool notified = true;
    {
      MutexLock lock(counter.mu);
      // It sets nothing before this thread waits.
      setter = std::thread([&counter] {
        MutexLock lock(counter.mu);
        counter.value = 1;
        counter.changed.NotifyOne();
      });
      while (counter.value == 0 && notified) {
        notified = counter.changed.WaitFor(counter.mu, timeout);
      }
    }
    setter.join();
    EXPECT_TRUE(notified) << timeout;
  }
}

}  // namespace
}  // namespace kaon
