#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace kaon::kernels {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(n, 0);
      pool.ParallelFor(n, [&](int64_t i) { ++runs[i]; });
      EXPECT_EQ(runs, std::vector<int>(n, 1)) << threads << " threads";
    }
  }
}

// All of them wait for one another, which they could not in fewer threads.
TEST(ThreadPoolTest, RunsAsManyTasksAtOnceAsItHasThreads) {
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads);
  std::atomic<int> arrived = 0;
  pool.ParallelFor(kThreads, [&](int64_t) {
    ++arrived;
    while (arrived < kThreads) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, kThreads);
}

TEST(ThreadPoolTest, TasksOfATaskRunInItsThread) {
  ThreadPool pool(3);
  std::atomic<int> elsewhere = 0;
  std::atomic<int> done = 0;
  pool.ParallelFor(5, [&](int64_t) {
    const std::thread::id self = std::this_thread::get_id();
    pool.ParallelFor(10, [&](int64_t) {
      if (std::this_thread::get_id() != self) ++elsewhere;
      ++done;
    });
  });
  EXPECT_EQ(done, 50);
  EXPECT_EQ(elsewhere, 0);
}

TEST(ThreadPoolTest, ServesSeveralCallers) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  std::vector<int64_t> sums(4);
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&pool, &sum = sums[caller]] {
      for (int round = 0; round < 100; ++round) {
        std::vector<int64_t> parts(20);
        pool.ParallelFor(20, [&](int64_t i) { parts[i] = i; });
        sum += std::accumulate(parts.begin(), parts.end(), int64_t{0});
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sums, std::vector<int64_t>(4, 19000));
}

TEST(ThreadPoolDeathTest, HasAtLeastTheCallersThread) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(ThreadPool(0), "0 threads, must be at least 1");
}

}  // namespace
}  // namespace kaon::kernels
