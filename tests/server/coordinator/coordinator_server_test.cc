#include "server/coordinator/coordinator_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

v1::CoordinatorConfig Config() {
  v1::CoordinatorConfig config;
  config.add_shards("127.0.0.1:9");
  return config;
}

void ExpectInvalid(const v1::CoordinatorConfig& config, const std::string& names) {
  const auto completed = CompleteConfig(config);
  EXPECT_EQ(completed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(completed.status().message(), HasSubstr(names));
}

TEST(CoordinatorServerTest, FillsInTheDocumentedDefaults) {
  const auto config = CompleteConfig(Config());
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->listen(), "127.0.0.1:0");
  EXPECT_EQ(config->heartbeat_ms(), 100);
  EXPECT_EQ(config->takeover_ms(), 500);
  EXPECT_EQ(config->checkpoint_keep(), 3);
  EXPECT_EQ(config->memory_bytes(), uint64_t{1} << 30);
}

TEST(CoordinatorServerTest, RefusesABadConfigurationNamingTheField) {
  ExpectInvalid({}, "shards");
  v1::CoordinatorConfig config = Config();
  config.set_listen("nowhere");
  ExpectInvalid(config, "listen");
  config = Config();
  config.add_shards("127.0.0.1:9");
  ExpectInvalid(config, "shards[1]");
  config = Config();
  config.set_shards(0, "x");
  ExpectInvalid(config, "shards[0]");
  config = Config();
  config.set_takeover_ms(150);
  ExpectInvalid(config, "takeover_ms is 150, must be 200");
  config = Config();
  config.set_heartbeat_ms(70000);
  ExpectInvalid(config, "heartbeat_ms is 70000");
  config = Config();
  config.set_checkpoint_every_steps(10);
  ExpectInvalid(config, "checkpoint_every_steps is 10, checkpoint_dir must be given");
  config.set_checkpoint_dir("/ckpt");
  config.set_checkpoint_every_steps((uint64_t{1} << 40) + 1);
  ExpectInvalid(config, "checkpoint_every_steps is 1099511627777, must be 0 .. 1099511627776");
  config = Config();
  config.set_checkpoint_keep(1);
  ExpectInvalid(config, "checkpoint_keep is 1, must be 2 .. 1000");
  config = Config();
  config.set_memory_bytes(1);
  ExpectInvalid(config, "memory_bytes is 1, must be 67108864 .. 1099511627776");
  config = Config();
  config.set_listen("0.0.0.0:1");
  ExpectInvalid(config, "advertise");
  config.set_advertise("y");
  ExpectInvalid(config, "advertise");
}

TEST(CoordinatorServerTest, RefusesAPublicAddressWithoutCertificates) {
  v1::CoordinatorConfig config = Config();
  config.set_listen("0.0.0.0:0");
  config.set_advertise("10.0.0.1:5");
  const auto server = CoordinatorServer::Start(config);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CoordinatorServerTest, WritesItsPortOnceItServes) {
  v1::CoordinatorConfig config = Config();
  config.set_port_file(std::string(std::getenv("TEST_TMPDIR")) + "/port");
  const auto server = CoordinatorServer::Start(config);
  ASSERT_TRUE(server.ok()) << server.status();
  int port = 0;
  std::ifstream(config.port_file()) >> port;
  EXPECT_EQ(port, (*server)->port());
}

TEST(CoordinatorServerTest, RefusesAPortInUse) {
  const auto first = CoordinatorServer::Start(Config());
  ASSERT_TRUE(first.ok());
  v1::CoordinatorConfig config = Config();
  config.set_listen("127.0.0.1:" + std::to_string((*first)->port()));
  const absl::Status status = CoordinatorServer::Start(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("cannot listen on " + config.listen() +
                        ": Address already in use, by pid " + std::to_string(getpid()) + " ("));
}

TEST(CoordinatorServerTest, ShutsDownTwice) {
  const auto server = CoordinatorServer::Start(Config());
  ASSERT_TRUE(server.ok());
  (*server)->Shutdown();
  (*server)->Shutdown();
}

}  // namespace
}  // namespace kaon::coordinator
