#include "server/config/server_process.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/config.pb.h"

namespace kaon::config {
namespace {

// State that the last server saw.
struct Life {
  std::string ca_file;
  bool started = false;
  bool guarded = false;
  bool shut_down = false;
  int reloads = 0;
};
Life life;

class Server {
 public:
  static absl::StatusOr<std::unique_ptr<Server>> Prepare(const v1::TlsConfig& config) {
    life.ca_file = config.ca_file();
    if (config.ca_file() == "bad") return absl::FailedPreconditionError("ca_file is bad");
    return std::make_unique<Server>();
  }
  absl::Status Serve() {
    life.started = true;
    if (life.ca_file == "taken") return absl::FailedPreconditionError("the port is taken");
    if (life.ca_file == "grows") kill(getpid(), SIGXFSZ);
    if (life.ca_file == "hangup") kill(getpid(), SIGHUP);
    // RunServer has blocked the signal, so it stays pending until the server waits for it.
    kill(getpid(), SIGTERM);
    return absl::OkStatus();
  }
  void GuardMemory() { life.guarded = life.started; }
  void Shutdown() { life.shut_down = true; }
};

int RunWith(std::vector<const char*> flags) {
  life = {};
  CommandLine line;
  line.program = "kaon-tested";
  line.flags = {
      {"ca_file", "CA"}, {"certificate_file", "certificate"}, {"private_key_file", "key"}};
  line.check_certificates = [](const google::protobuf::Message&) {
    // The server reads them again, and lives until the next signal.
    ++life.reloads;
    return absl::OkStatus();
  };
  line.complete = [](google::protobuf::Message*) { return absl::OkStatus(); };
  flags.insert(flags.begin(), "kaon-tested");
  return RunServer<Server, v1::TlsConfig>(line, static_cast<int>(flags.size()), flags.data());
}

TEST(RunServerTest, ServesUntilASignalAndShutsDown) {
  EXPECT_EQ(RunWith({"--ca-file", "ca.pem"}), 0);
  EXPECT_EQ(life.ca_file, "ca.pem");
  EXPECT_TRUE(life.guarded);
  EXPECT_TRUE(life.shut_down);
}

TEST(RunServerTest, AHangupReloadsAndEndsNothing) {
  EXPECT_EQ(RunWith({"--ca-file", "hangup"}), 0);
  EXPECT_EQ(life.reloads, 1);
  EXPECT_TRUE(life.shut_down);
}

TEST(RunServerTest, LivesOnWhenAFileMayGrowNoMore) {
  EXPECT_EQ(RunWith({"--ca-file", "grows"}), 0);
  EXPECT_TRUE(life.shut_down);
}

TEST(RunServerTest, MayHaveAsManyFilesOpenAsTheSystemLets) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max / 2;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(RunWith({"--ca-file", "ca.pem"}), 0);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

TEST(RunServerTest, RefusesAFailpointThatIsNone) {
  setenv("KAON_FAILPOINT", "no_such_point", 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(RunWith({"--ca-file", "ca.pem"}), 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no_such_point"), std::string::npos);
  EXPECT_FALSE(life.started);
  unsetenv("KAON_FAILPOINT");
}

TEST(RunServerTest, ACheckAndAStartRefuseWithTheSameWords) {
  for (const bool check : {false, true}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(
        check ? RunWith({"--ca-file", "bad", "--check-config"}) : RunWith({"--ca-file", "bad"}), 2);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "kaon-tested: ca_file is bad\n");
    EXPECT_FALSE(life.started);
  }
}

TEST(RunServerTest, SaysWhyItCannotServe) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(RunWith({"--ca-file", "taken"}), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "kaon-tested: FAILED_PRECONDITION: the port is taken\n");
  EXPECT_EQ(RunWith({"--ca-file", "taken", "--check-config"}), 0);
}

TEST(RunServerTest, StartsNothingForABadCommandLine) {
  EXPECT_EQ(RunWith({"--no-such-flag"}), 2);
  EXPECT_EQ(RunWith({"--print-config"}), 0);
  EXPECT_FALSE(life.started);
}

}  // namespace
}  // namespace kaon::config
