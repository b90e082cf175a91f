#include "proto/failpoint.h"

#include <gtest/gtest.h>

#include <csignal>

namespace kaon {
namespace {

class FailpointTest : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  void TearDown() override { EXPECT_TRUE(ArmFailpoint("").ok()); }
};

TEST_F(FailpointTest, NothingHappensUnlessOneIsArmed) {
  PassFailpoint(Failpoint::disk_write_begin);
  PassFailpoint(Failpoint::worker_pulled);
}

TEST_F(FailpointTest, KillsItsOwnProcessAtTheNthPassing) {
  EXPECT_EXIT(
      {
        ArmFailpoint("disk_write_begin:3").IgnoreError();  // Checked below.
        PassFailpoint(Failpoint::disk_write_begin);
        PassFailpoint(Failpoint::disk_write_begin);
        PassFailpoint(Failpoint::disk_write_end);
        fputs("twice\n", stderr);
        PassFailpoint(Failpoint::disk_write_begin);
        fputs("lived on\n", stderr);
      },
      testing::KilledBySignal(SIGKILL),
      "^twice\nKAON_FAILPOINT disk_write_begin: this process ends here\n$");
}

TEST_F(FailpointTest, WithoutANumberAtTheFirst) {
  EXPECT_EXIT(
      {
        ArmFailpoint("worker_pulled").IgnoreError();  // Checked below.
        PassFailpoint(Failpoint::worker_pulled);
      },
      testing::KilledBySignal(SIGKILL), "KAON_FAILPOINT worker_pulled: ");
}

TEST_F(FailpointTest, ReadsItsNameFromTheEnvironment) {
  setenv("KAON_FAILPOINT", "journal_synced:7", 1);
  EXPECT_TRUE(ArmFailpointOfEnvironment().ok());
  EXPECT_EQ(armed_failpoint, Failpoint::journal_synced);
  unsetenv("KAON_FAILPOINT");
  EXPECT_TRUE(ArmFailpointOfEnvironment().ok());
  EXPECT_EQ(armed_failpoint, Failpoint::kNone);
}

TEST_F(FailpointTest, RefusesWhatItDoesNotKnowAndArmsNothing) {
  for (const char* text : {"disk", "disk_write_begin:0", "disk_write_begin:-1", "disk_write_begin:",
                           "disk_write_begin:1:1", "disk_write_begin:1000000001", ":1"}) {
    const absl::Status status = ArmFailpoint(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
    EXPECT_EQ(armed_failpoint, Failpoint::kNone) << text;
  }
}

}  // namespace
}  // namespace kaon
