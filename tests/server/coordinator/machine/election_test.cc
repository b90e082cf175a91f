#include "server/coordinator/machine/election.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "proto/ballot.h"

namespace kaon::coordinator {
namespace {

constexpr uint64_t kNever = std::numeric_limits<int64_t>::max();

ElectionOptions Options(uint64_t seed = 1) {
  ElectionOptions options;
  options.num_shards = 2;
  options.incarnation_high = 5;
  options.seed = seed;
  options.takeover = absl::Milliseconds(500);
  return options;
}

v1::ShardToCoordinator Probed(uint64_t counter, uint64_t silent_ms, const std::string& holder) {
  v1::ShardToCoordinator message;
  message.mutable_promised()->set_counter(counter);
  message.mutable_probed()->set_holder_silent_ms(silent_ms);
  message.mutable_probed()->set_holder_address(holder);
  return message;
}

bool Silent(Election& election, const v1::ShardToCoordinator& message, absl::Time now) {
  election.Observe(0, message, now);
  return election.HolderIsSilent(0, message.probed(), now);
}

TEST(ElectionTest, PatienceIsBetweenOneAndTwoTakeovers) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Election election(Options(seed));
    EXPECT_FALSE(Silent(election, Probed(1, 499, "b"), absl::UnixEpoch()));
    EXPECT_TRUE(Silent(election, Probed(1, 1000, "b"), absl::UnixEpoch()));
  }
}

TEST(ElectionTest, PatienceOfTwoCoordinatorsDiffers) {
  int differ = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Election a(Options(seed));
    Election b(Options(seed + 1000));
    const auto probed = Probed(1, 750, "c");
    differ += Silent(a, probed, absl::UnixEpoch()) != Silent(b, probed, absl::UnixEpoch());
  }
  EXPECT_GT(differ, 10);
}

TEST(ElectionTest, ShardThatNeverPromisedIsWaitedForTheRandomPartOnly) {
  Election election(Options());
  const absl::Time start = absl::UnixEpoch();
  EXPECT_FALSE(Silent(election, Probed(0, kNever, ""), start));
  EXPECT_TRUE(Silent(election, Probed(0, kNever, ""), start + absl::Milliseconds(500)));
}

TEST(ElectionTest, PatienceDoublesWithRefusalsAndIsShortAgainAfterAWin) {
  Election election(Options());
  election.Refused();
  election.Refused();
  EXPECT_FALSE(Silent(election, Probed(1, 1999, "b"), absl::UnixEpoch()));
  EXPECT_TRUE(Silent(election, Probed(1, 4000, "b"), absl::UnixEpoch()));
  election.Won();
  EXPECT_TRUE(Silent(election, Probed(1, 1000, "b"), absl::UnixEpoch()));
}

// Who lost six times, and would wait for half a minute, when the winner dies much later.
TEST(ElectionTest, PatienceIsShortAgainOnceAHolderIsSettled) {
  Election election(Options());
  for (int i = 0; i < 10; ++i) election.Refused();
  absl::Time now = absl::UnixEpoch();
  EXPECT_FALSE(Silent(election, Probed(7, 30'000, "b"), now));
  EXPECT_FALSE(Silent(election, Probed(7, 0, "b"), now));
  now += absl::Milliseconds(1999);
  EXPECT_FALSE(Silent(election, Probed(7, 100, "b"), now));
  EXPECT_FALSE(Silent(election, Probed(7, 1000, "b"), now));
  // It had been silent, so the time begins anew.
  EXPECT_FALSE(Silent(election, Probed(7, 0, "b"), now));
  now += absl::Milliseconds(2000);
  EXPECT_FALSE(Silent(election, Probed(7, 100, "b"), now));
  EXPECT_TRUE(Silent(election, Probed(7, 1000, "b"), now));
}

// As long as shards tell of different ones, or of new ones.
TEST(ElectionTest, PatienceStaysLongWhileHoldersChange) {
  Election election(Options());
  for (int i = 0; i < 10; ++i) election.Refused();
  absl::Time now = absl::UnixEpoch();
  for (uint64_t counter = 7; counter < 20; ++counter) {
    now += absl::Seconds(1);
    election.Observe(0, Probed(counter, 0, "b"), now);
    election.Observe(1, Probed(counter - 1, 0, "c"), now);
  }
  EXPECT_FALSE(Silent(election, Probed(20, 30'000, "b"), now));
}

TEST(ElectionTest, BallotIsAboveEveryOneSeenAndNeverRepeats) {
  Election election(Options());
  election.Observe(0, Probed(41, 0, "b"), absl::UnixEpoch());
  election.Observe(1, Probed(12, 0, "b"), absl::UnixEpoch());
  const v1::Ballot first = election.TakeBallot();
  EXPECT_EQ(first.counter(), 42);
  EXPECT_EQ(first.incarnation_high(), 5);
  EXPECT_GT(proto::Compare(election.TakeBallot(), first), 0);
}

TEST(ElectionTest, BelievesTheHolderOfTheHighestBallot) {
  Election election(Options());
  election.Observe(0, Probed(9, 0, "high"), absl::UnixEpoch());
  election.Observe(1, Probed(3, 0, "low"), absl::UnixEpoch());
  EXPECT_EQ(election.holder_address(), "high");
}

}  // namespace
}  // namespace kaon::coordinator
