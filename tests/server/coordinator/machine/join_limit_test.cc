#include "server/coordinator/machine/join_limit.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace kaon::coordinator {
namespace {

class JoinLimitTest : public testing::Test {
 protected:
  absl::Status Join(uint32_t rank) {
    absl::Status status = limit_.Check(rank);
    if (status.ok()) limit_.Note(rank);
    return status;
  }
  void Pass(absl::Duration time) {
    now_ += time;
    limit_.Tick(now_);
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  JoinLimit limit_;
};

TEST_F(JoinLimitTest, AWorkerMayRestartAFewTimes) {
  Pass(absl::ZeroDuration());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Join(1).ok());
  EXPECT_EQ(Join(1),
            absl::UnavailableError("rank 1 was taken 4 times in short order, join again in 1s"));
  EXPECT_TRUE(Join(2).ok());
  Pass(absl::Milliseconds(400));
  EXPECT_EQ(Join(1).message(), "rank 1 was taken 4 times in short order, join again in 600ms");
  Pass(absl::Milliseconds(600));
  EXPECT_TRUE(Join(1).ok());
  EXPECT_FALSE(Join(1).ok());
}

TEST_F(JoinLimitTest, AQuietTimeFreesThemAll) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Join(1).ok());
  Pass(absl::Hours(1));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Join(1).ok());
  EXPECT_FALSE(Join(1).ok());
}

// A refusal costs the rank nothing, however often it asks.
TEST_F(JoinLimitTest, OneJoinASecondAfterThat) {
  Pass(absl::ZeroDuration());
  int joined = 0;
  for (int i = 0; i < 100; ++i) {
    joined += Join(1).ok();
    Pass(absl::Milliseconds(100));
  }
  EXPECT_EQ(joined, 4 + 9);
}

TEST_F(JoinLimitTest, KeepsARankAwayThatIsLateAgainAndAgain) {
  Pass(absl::ZeroDuration());
  for (const int seconds : {0, 1, 2, 4, 8, 16, 16, 16}) {
    limit_.NoteLate(1);
    for (int i = 0; i < seconds; ++i) {
      EXPECT_EQ(limit_.CheckLate(1),
                absl::UnavailableError(absl::StrCat(
                    "rank 1 was lost again because it was late, try again in ", seconds - i, "s")));
      EXPECT_TRUE(limit_.CheckLate(2).ok());
      Pass(absl::Seconds(1));
    }
    EXPECT_TRUE(limit_.CheckLate(1).ok()) << seconds;
  }
  limit_.NoteTrained(1);
  limit_.NoteLate(1);
  EXPECT_TRUE(limit_.CheckLate(1).ok());
  limit_.NoteLate(1);
  EXPECT_FALSE(limit_.CheckLate(1).ok());
}

}  // namespace
}  // namespace kaon::coordinator
