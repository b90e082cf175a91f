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
  bool shut_down = false;
};
Life life;

class Server {
 public:
  static absl::StatusOr<std::unique_ptr<Server>> Start(const v1::TlsConfig& config) {
    life.started = true;
    life.ca_file = config.ca_file();
    if (config.ca_file() == "bad") return absl::FailedPreconditionError("ca_file is bad");
    if (config.ca_file() == "grows") kill(getpid(), SIGXFSZ);
    // RunServer has blocked the signal, so it stays pending until the server waits for it.
    kill(getpid(), SIGTERM);
    return std::make_unique<Server>();
  }
  void Shutdown() { life.shut_down = true; }
};

int RunWith(std::vector<const char*> flags) {
  life = {};
  CommandLine line;
  line.program = "kaon-tested";
  line.flags = {
      {"ca_file", "CA"}, {"certificate_file", "certificate"}, {"private_key_file", "key"}};
  line.complete = [](google::protobuf::Message*) { return absl::OkStatus(); };
  flags.insert(flags.begin(), "kaon-tested");
  return RunServer<Server, v1::TlsConfig>(line, static_cast<int>(flags.size()), flags.data());
}

TEST(RunServerTest, ServesUntilASignalAndShutsDown) {
  EXPECT_EQ(RunWith({"--ca-file", "ca.pem"}), 0);
  EXPECT_EQ(life.ca_file, "ca.pem");
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

TEST(RunServerTest, SaysWhyItCannotStart) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(RunWith({"--ca-file", "bad"}), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "kaon-tested: FAILED_PRECONDITION: ca_file is bad\n");
}

TEST(RunServerTest, StartsNothingForABadCommandLine) {
  EXPECT_EQ(RunWith({"--no-such-flag"}), 2);
  EXPECT_EQ(RunWith({"--print-config"}), 0);
  EXPECT_FALSE(life.started);
}

}  // namespace
}  // namespace kaon::config
