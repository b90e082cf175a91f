#include "server/config/reload.h"

#include <glog/logging.h>
#include <gtest/gtest.h>

#include "kaon/v1/config.pb.h"
#include "tests/testing/captured_log.h"

namespace kaon::config {
namespace {

// Returns what a reload logs; `certificates` is the result of their check.
std::string Logged(const v1::ShardConfig& running, const v1::ShardConfig* reread,
                   const absl::Status& certificates = absl::OkStatus()) {
  CommandLine line;
  line.check_certificates = [&](const google::protobuf::Message&) { return certificates; };
  const kaon::testing::CapturedLog log;
  Reload(line, running, reread);
  return log.text();
}

TEST(ReloadTest, AppliesTheLogLevelAndNamesWhatNeedsARestart) {
  v1::ShardConfig running;
  running.set_threads(2);
  running.mutable_tls()->set_ca_file("ca.crt");
  v1::ShardConfig reread = running;
  reread.set_log_level("debug");
  EXPECT_EQ(Logged(running, &reread),
            "SIGHUP: the log level is set, and the certificates are good\n");
  EXPECT_EQ(FLAGS_v, 1);
  reread.set_threads(3);
  reread.mutable_tls()->set_ca_file("other.crt");
  reread.clear_log_level();
  EXPECT_EQ(Logged(running, &reread),
            "SIGHUP: the log level is set, and the certificates are good; restart to apply tls, "
            "threads\n");
  EXPECT_EQ(FLAGS_v, 0);
}

TEST(ReloadTest, SaysThatCertificatesAreBadAndStillAppliesTheLogLevel) {
  v1::ShardConfig reread;
  reread.set_log_level("warning");
  reread.set_threads(3);
  EXPECT_EQ(Logged({}, &reread, absl::FailedPreconditionError("ca.crt is bad")),
            "SIGHUP: the log level is set; ca.crt is bad: replace the file, which is read when it "
            "changes; restart to apply threads\n");
  EXPECT_EQ(FLAGS_minloglevel, google::GLOG_WARNING);
}

TEST(ReloadTest, AConfigurationThatCannotBeReadChangesNothing) {
  v1::ShardConfig running;
  running.set_log_level("info");
  ApplyLogLevel(running);
  EXPECT_EQ(Logged(running, nullptr),
            "SIGHUP: the configuration cannot be read; everything stays as it is\n");
  EXPECT_EQ(FLAGS_minloglevel, google::GLOG_INFO);
}

}  // namespace
}  // namespace kaon::config
