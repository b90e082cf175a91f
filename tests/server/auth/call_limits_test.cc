#include "server/auth/call_limits.h"

#include <gtest/gtest.h>

#include <vector>

namespace kaon::auth {
namespace {

class CallLimitsTest : public testing::Test {
 protected:
  CallLimitsTest() {
    limits_.OnExcess([this](uint64_t connection, bool had_handler) {
      ended_.push_back(connection);
      had_handler_ = had_handler;
    });
  }

  absl::Status Arrive(uint64_t connection, const std::string& identity = "w") {
    return limits_.Arrive(connection, identity, /*header_bytes=*/300, now_);
  }
  // Returns how many of that many calls are allowed.
  int ArriveTimes(uint64_t connection, int calls, const std::string& identity = "w") {
    int allowed = 0;
    for (int i = 0; i < calls; ++i) allowed += Arrive(connection, identity).ok();
    return allowed;
  }

  CallLimits limits_{/*calls_of_connection=*/8};
  std::vector<uint64_t> ended_;
  // True if the connection that ended last had a handler.
  bool had_handler_ = false;
  absl::Time now_ = absl::FromUnixSeconds(1000);
};

TEST_F(CallLimitsTest, AConnectionHasALimitUntilItsCallsEnd) {
  const uint64_t one = limits_.Connect(now_);
  const uint64_t two = limits_.Connect(now_);
  EXPECT_NE(one, two);
  EXPECT_EQ(ArriveTimes(one, 20), 8);
  EXPECT_EQ(Arrive(one),
            absl::UnavailableError("at most 8 calls of one connection may be open, try again"));
  EXPECT_TRUE(Arrive(two).ok());
  limits_.Begin(one);
  EXPECT_FALSE(Arrive(one).ok());
  limits_.End(one);
  EXPECT_EQ(ArriveTimes(one, 20), 1);
  EXPECT_TRUE(ended_.empty());
}

TEST_F(CallLimitsTest, EndsAConnectionThatGoesOn) {
  const uint64_t one = limits_.Connect(now_);
  ArriveTimes(one, 8 + 63);
  EXPECT_TRUE(ended_.empty());
  ArriveTimes(one, 1);
  EXPECT_EQ(ended_, std::vector<uint64_t>{one});
  // It may not have been found.
  ArriveTimes(one, 64);
  EXPECT_EQ(ended_, (std::vector<uint64_t>{one, one}));
  EXPECT_FALSE(had_handler_);
  limits_.Begin(one);
  ArriveTimes(one, 64);
  EXPECT_TRUE(had_handler_);
}

TEST_F(CallLimitsTest, EndsAConnectionWithLargeHeaders) {
  const uint64_t one = limits_.Connect(now_);
  EXPECT_TRUE(limits_.Arrive(one, "w", 64 << 10, now_).ok());
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(limits_.Arrive(one, "w", (64 << 10) + 1, now_),
            absl::UnavailableError("headers have 65537 bytes, at most 65536 allowed"));
  EXPECT_EQ(ended_, std::vector<uint64_t>{one});
}

// Nobody tells of the end of a call that had no handler.
TEST_F(CallLimitsTest, ForgivesOneCallASecondThatHasNoHandler) {
  const uint64_t one = limits_.Connect(now_);
  EXPECT_EQ(ArriveTimes(one, 20), 8);
  now_ += absl::Milliseconds(2500);
  EXPECT_EQ(ArriveTimes(one, 20), 2);
  now_ += absl::Milliseconds(500);
  EXPECT_EQ(ArriveTimes(one, 20), 1);
  // One that begins after it was forgiven counts again.
  for (int i = 0; i < 8; ++i) limits_.Begin(one);
  now_ += absl::Hours(1);
  EXPECT_FALSE(Arrive(one).ok());
  for (int i = 0; i < 9; ++i) limits_.End(one);
  EXPECT_EQ(ArriveTimes(one, 20), 8);
}

TEST_F(CallLimitsTest, AnIdentityGetsAQuarterOfTheMemory) {
  limits_.SetBudget(20 * 4 * CallLimits::kCallBytes);
  std::vector<uint64_t> connections;
  for (int i = 0; i < 4; ++i) connections.push_back(limits_.Connect(now_));
  EXPECT_EQ(ArriveTimes(connections[0], 8), 8);
  EXPECT_EQ(ArriveTimes(connections[1], 8), 8);
  EXPECT_EQ(ArriveTimes(connections[2], 8), 4);
  EXPECT_EQ(Arrive(connections[2]).message(), "at most 20 calls of w may be open, try again");
  // A few are free on each connection: another program may use the certificate as well.
  EXPECT_EQ(ArriveTimes(connections[3], 8), 4);
  const uint64_t other = limits_.Connect(now_);
  EXPECT_EQ(ArriveTimes(other, 8, "v"), 8);
  limits_.Forget(connections[0]);
  EXPECT_EQ(ArriveTimes(connections[3], 8), 4);
}

TEST_F(CallLimitsTest, ForgetsConnectionsThatNeverHadAHandler) {
  limits_.SetBudget(8 * 4 * CallLimits::kCallBytes);
  EXPECT_EQ(ArriveTimes(limits_.Connect(now_), 8), 8);
  const uint64_t known = limits_.Connect(now_);
  EXPECT_EQ(ArriveTimes(known, 8), 4);
  for (int i = 0; i < 4; ++i) limits_.Begin(known);
  now_ += absl::Seconds(15);
  const uint64_t late = limits_.Connect(now_);
  // Those of `known` are open still.
  EXPECT_EQ(ArriveTimes(late, 8), 4);
}

}  // namespace
}  // namespace kaon::auth
