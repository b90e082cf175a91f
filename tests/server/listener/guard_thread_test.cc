#include "server/listener/guard_thread.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kaon::listener {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(GuardThreadTest, EndsTheConnectionThatTakesTheMemoryAndTrims) {
  Mutex mu;
  CondVar changed;
  bool ended = false;
  int trims_before = 0;
  int trims_after = 0;
  GuardThread::Options options;
  options.most_bytes = 100 * kMiB;
  options.resident_bytes = [&] {
    MutexLock lock(mu);
    return ended ? 50 * kMiB : 101 * kMiB;
  };
  options.connections = [] { return std::vector<ConnectionUse>{{7, "attacker", 30 * kMiB, 0}}; };
  options.cut = [&](const std::vector<uint64_t>& connections) {
    EXPECT_EQ(connections, std::vector<uint64_t>{7});
    MutexLock lock(mu);
    ended = true;
    return connections.size();
  };
  options.close = [](bool) {};
  options.trim = [&] {
    MutexLock lock(mu);
    ++(ended ? trims_after : trims_before);
    changed.NotifyAll();
  };
  GuardThread guard(std::move(options));
  MutexLock lock(mu);
  while (trims_after == 0) changed.WaitFor(mu, absl::Seconds(1));
  EXPECT_TRUE(ended);
  EXPECT_GE(trims_before, 1);
}

TEST(GuardThreadTest, EndsNobodyIfATrimIsEnough) {
  Mutex mu;
  CondVar changed;
  bool trimmed = false;
  int looks = 0;
  GuardThread::Options options;
  options.most_bytes = 100 * kMiB;
  options.resident_bytes = [&] {
    MutexLock lock(mu);
    ++looks;
    changed.NotifyAll();
    return trimmed ? 50 * kMiB : 101 * kMiB;
  };
  options.connections = [] { return std::vector<ConnectionUse>{{7, "worker", 30 * kMiB, 0}}; };
  options.cut = [&](const std::vector<uint64_t>&) -> size_t {
    ADD_FAILURE() << "ended";
    return 0;
  };
  options.close = [](bool) {};
  options.trim = [&] {
    MutexLock lock(mu);
    trimmed = true;
  };
  GuardThread guard(std::move(options));
  MutexLock lock(mu);
  while (looks < 10) changed.WaitFor(mu, absl::Seconds(1));
  EXPECT_TRUE(trimmed);
}

TEST(GuardThreadTest, TrimsMemoryThatStaysBelowTheMark) {
  Mutex mu;
  CondVar changed;
  bool trimmed = false;
  GuardThread::Options options;
  options.most_bytes = 100 * kMiB;
  options.resident_bytes = [] { return 97 * kMiB; };
  options.connections = [] { return std::vector<ConnectionUse>(); };
  options.cut = [](const std::vector<uint64_t>&) -> size_t { return 0; };
  options.close = [](bool) {};
  options.trim = [&] {
    MutexLock lock(mu);
    trimmed = true;
    changed.NotifyAll();
  };
  GuardThread guard(std::move(options));
  MutexLock lock(mu);
  while (!trimmed) changed.WaitFor(mu, absl::Seconds(1));
}

TEST(ResidentBytesTest, IsThatOfThisProcess) {
  const uint64_t before = ResidentBytes();
  EXPECT_GT(before, kMiB);
  const std::string touched(64 * kMiB, 'x');
  EXPECT_GT(ResidentBytes(), before + 32 * kMiB);
  EXPECT_EQ(touched.back(), 'x');
}

}  // namespace
}  // namespace kaon::listener
