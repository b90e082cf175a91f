#include "server/listener/memory_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace kaon::listener {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kMiB = 1 << 20;

class MemoryGuardTest : public ::testing::Test {
 protected:
  // Returns the connections to end with so much resident.
  std::vector<uint64_t> At(uint64_t resident_bytes, const std::vector<ConnectionUse>& uses) {
    guard_.Observe(uses, now_);
    if (!guard_.IsOver(resident_bytes, now_)) return {};
    const std::optional<MemoryGuard::Cut> cut = guard_.Decide(resident_bytes, now_);
    return cut.has_value() ? cut->connections : std::vector<uint64_t>();
  }

  // An attacker that nobody takes anything of.
  static std::vector<ConnectionUse> Attacker(uint64_t mebibytes) {
    return {{1, "attacker", mebibytes * kMiB, 0}};
  }

  MemoryGuard guard_{100 * kMiB};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(MemoryGuardTest, CutsNobodyBelowTheMark) {
  EXPECT_THAT(At(100 * kMiB, {{1, "worker", 900 * kMiB, 0}}), ElementsAre());
  EXPECT_THAT(At(101 * kMiB, {{1, "worker", 900 * kMiB, 0}}), ElementsAre(1));
}

TEST_F(MemoryGuardTest, CutsTheOwnerOfMostBytesThatNobodyTook) {
  EXPECT_THAT(At(101 * kMiB, {{1, "pushes much", 900 * kMiB, 899 * kMiB},
                              {2, "holds", 20 * kMiB, 0},
                              {3, "holds", 30 * kMiB, 0},
                              {4, "holds and works", 40 * kMiB, 0},
                              {5, "holds", 7 * kMiB, 0}}),
              UnorderedElementsAre(2, 3));
}

TEST_F(MemoryGuardTest, CutsNobodyWhoseCallsAreSmall) {
  EXPECT_THAT(At(200 * kMiB, {{1, "worker", 60 << 10, 0}, {2, "reader", 30 << 10, 0}}),
              ElementsAre());
}

TEST_F(MemoryGuardTest, CutsWhoeverFillsSlowlyAndHoldsLong) {
  ConnectionUse pushes = {1, "worker"};
  ConnectionUse holds = {2, "attacker"};
  for (int second = 0; second < 600; ++second) {
    now_ += absl::Seconds(1);
    pushes.received_bytes += 500 * kMiB;
    pushes.taken_bytes += 499 * kMiB;
    pushes.taken_messages += 499;
    if (second < 100) holds.received_bytes += 100 << 10;
    guard_.Observe({pushes, holds}, now_);
  }
  EXPECT_THAT(At(101 * kMiB, {pushes, holds}), ElementsAre(2));
}

TEST_F(MemoryGuardTest, ForgivesTheOverheadOfSmallCallsAndPings) {
  ConnectionUse calls = {1, "worker"};
  for (int second = 0; second < 10000; ++second) {
    now_ += absl::Seconds(1);
    calls.received_bytes += 100 * 160 + 80;
    calls.taken_bytes += 100 * 20;
    calls.taken_messages += 100;
    guard_.Observe({calls}, now_);
  }
  EXPECT_THAT(At(110 * kMiB, {calls}), ElementsAre());
}

TEST_F(MemoryGuardTest, KeepsNoAllowanceForLater) {
  guard_.Observe({{1, "attacker"}}, now_);
  now_ += absl::Hours(24);
  guard_.Observe({{1, "attacker"}}, now_);
  now_ += absl::Seconds(1);
  EXPECT_THAT(At(110 * kMiB, {{1, "attacker", kMiB}}), ElementsAre(1));
}

TEST_F(MemoryGuardTest, CountsSmallAmountsOfOneOwnerTogether) {
  std::vector<ConnectionUse> uses;
  for (uint64_t id = 0; id < 100; ++id) uses.push_back({id, "attacker", 60 << 10});
  uses.push_back({100, "worker", kMiB});
  const std::vector<uint64_t> cut = At(110 * kMiB, uses);
  EXPECT_EQ(cut.size(), 100u);
  EXPECT_EQ(std::count(cut.begin(), cut.end(), 100), 0);
}

TEST_F(MemoryGuardTest, TakesManyOpenCallsForMemory) {
  ConnectionUse pushes = {1, "worker", 3 * kMiB};
  pushes.open_calls = 4;
  ConnectionUse opens = {2, "attacker", 20 << 10};
  opens.open_calls = 1000;
  EXPECT_THAT(At(110 * kMiB, {pushes, opens}), ElementsAre(2));
}

// The workers of a job may share a certificate.
TEST_F(MemoryGuardTest, TakesOneCallOfEachOfManyConnectionsForUsual) {
  std::vector<ConnectionUse> uses;
  for (uint64_t id = 1; id <= 4096; ++id) {
    uses.push_back({id, "workers", 0, 0});
    uses.back().open_calls = 2;
  }
  EXPECT_THAT(At(120 * kMiB, uses), ElementsAre());
  uses.push_back({5000, "attacker", 2 * kMiB, 0});
  EXPECT_THAT(At(120 * kMiB, uses), ElementsAre(5000));
}

TEST_F(MemoryGuardTest, CutsNobodyWhoExplainsTooLittle) {
  EXPECT_THAT(At(180 * kMiB, {{1, "worker", 300 << 10}}), ElementsAre());
  EXPECT_THAT(At(150 * kMiB, {{1, "worker", 300 << 10}}), ElementsAre(1));
}

TEST_F(MemoryGuardTest, WaitsForTheMemoryToFallUnlessItGrowsOn) {
  const std::vector<ConnectionUse> uses = {{1, "a", 90 * kMiB, 0}, {2, "b", 80 * kMiB, 0}};
  EXPECT_THAT(At(110 * kMiB, uses), ElementsAre(1));
  now_ += absl::Milliseconds(100);
  EXPECT_THAT(At(110 * kMiB, {uses[1]}), ElementsAre());
  EXPECT_THAT(At(104 * kMiB, {uses[1]}), ElementsAre());
  EXPECT_THAT(At(107 * kMiB, {uses[1]}), ElementsAre(2));
}

TEST_F(MemoryGuardTest, CutsMoreAndMoreRarelyIfItDoesNotHelp) {
  int cuts = 0;
  for (int second = 0; second < 100; ++second) {
    now_ += absl::Seconds(1);
    const uint64_t id = second;
    if (!At(110 * kMiB, {{id, "worker", kMiB, 0}}).empty()) ++cuts;
  }
  EXPECT_LE(cuts, 8);
}

// Memory that swings about the mark with honest use.
TEST_F(MemoryGuardTest, CutsMoreAndMoreRarelyIfMemorySwings) {
  int cuts = 0;
  for (int look = 0; look < 10000; ++look) {
    now_ += absl::Milliseconds(10);
    const uint64_t id = look;
    if (!At((look % 20 < 10 ? 103 : 107) * kMiB, {{id, "worker", kMiB, 0}}).empty()) ++cuts;
  }
  EXPECT_LE(cuts, 40);
}

TEST_F(MemoryGuardTest, ActsBeforeTheMarkIfMemoryGrowsFast) {
  EXPECT_THAT(At(80 * kMiB, Attacker(80)), ElementsAre());
  now_ += absl::Milliseconds(50);
  EXPECT_THAT(At(84 * kMiB, Attacker(84)), ElementsAre());
  now_ += absl::Milliseconds(5);
  EXPECT_THAT(At(87 * kMiB, Attacker(87)), ElementsAre());
  now_ += absl::Milliseconds(5);
  EXPECT_THAT(At(92 * kMiB, Attacker(92)), ElementsAre(1));
}

TEST_F(MemoryGuardTest, ExpectsLittleGrowthAfterALongTime) {
  EXPECT_THAT(At(80 * kMiB, Attacker(80)), ElementsAre());
  now_ += absl::Seconds(1);
  EXPECT_THAT(At(86 * kMiB, Attacker(86)), ElementsAre());
  now_ += absl::Seconds(1);
  EXPECT_THAT(At(98 * kMiB, Attacker(98)), ElementsAre());
}

TEST_F(MemoryGuardTest, ExpectsNoGrowthWithoutBytesThatArrive) {
  for (int look = 0; look < 20; ++look) {
    now_ += absl::Milliseconds(10);
    EXPECT_THAT(At((60 + 2 * look) * kMiB, Attacker(30)), ElementsAre());
  }
}

TEST_F(MemoryGuardTest, ClosesUntilTheMemoryIsFreeOrTwoSecondsHavePassed) {
  EXPECT_FALSE(guard_.IsClosed(110 * kMiB, now_));
  EXPECT_THAT(At(110 * kMiB, {{1, "attacker", 90 * kMiB, 0}}), ElementsAre(1));
  EXPECT_TRUE(guard_.IsClosed(110 * kMiB, now_));
  EXPECT_FALSE(guard_.IsClosed(90 * kMiB, now_));
  EXPECT_TRUE(guard_.IsOver(108 * kMiB, now_ + absl::Seconds(1)));
  EXPECT_TRUE(guard_.IsClosed(108 * kMiB, now_ + absl::Seconds(1)));
  EXPECT_FALSE(guard_.IsClosed(108 * kMiB, now_ + absl::Seconds(2)));
}

TEST_F(MemoryGuardTest, OpensSoonIfTheCutFreesNothing) {
  EXPECT_THAT(At(110 * kMiB, {{1, "worker", 90 * kMiB, 0}}), ElementsAre(1));
  now_ += absl::Milliseconds(300);
  EXPECT_TRUE(guard_.IsOver(110 * kMiB, now_));
  EXPECT_FALSE(guard_.IsClosed(110 * kMiB, now_));
}

TEST_F(MemoryGuardTest, IsClosedForAtMostHalfOfTheTime) {
  int closed = 0;
  for (int look = 0; look < 1000; ++look) {
    now_ += absl::Milliseconds(100);
    // Falls below the mark after each cut, and rises again.
    const uint64_t resident = (look % 4 == 0 ? 101 : 96 - look % 4) * kMiB;
    At(resident, {{static_cast<uint64_t>(look), "attacker", 90 * kMiB, 0}});
    if (guard_.IsClosed(resident, now_)) ++closed;
  }
  EXPECT_GT(closed, 0);
  EXPECT_LE(closed, 500);
}

TEST(MemoryGuardMarkTest, StaysWithinATenthOfTheBudget) {
  EXPECT_EQ(MemoryGuard::MostBytes(1000 * kMiB), 1060 * kMiB);
  EXPECT_EQ(MemoryGuard::MostBytes(64 * kMiB), 160 * kMiB);
}

}  // namespace
}  // namespace kaon::listener
