#include "server/coordinator/service/gather_phases.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/coordinator/fake_shard.h"

namespace kaon::coordinator {
namespace {

std::unique_ptr<ShardLink> LinkTo(const std::string& address) {
  ShardLinkOptions options;
  options.channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  ShardLinkEvents events;
  events.connected = [] {};
  events.disconnected = [](const absl::Status&) {};
  events.message = [](const v1::ShardToCoordinator&) {};
  return std::make_unique<ShardLink>(std::move(options), std::move(events));
}

TEST(GatherPhasesTest, SaysWhichShardDoesNotAnswer) {
  FakeShard first;
  FakeShard third;
  std::vector<std::unique_ptr<ShardLink>> links;
  for (const std::string& address :
       {first.address(), std::string("127.0.0.1:1"), third.address()}) {
    links.push_back(LinkTo(address));
  }
  std::promise<std::vector<v1::ShardPhases>> gathered;
  GatherPhases(
      links, v1::ReadHistoryRequest(), absl::Seconds(10),
      [&gathered](std::vector<v1::ShardPhases> phases) { gathered.set_value(std::move(phases)); });
  const std::vector<v1::ShardPhases> phases = gathered.get_future().get();
  ASSERT_EQ(phases.size(), 3u);
  for (uint32_t shard : {0, 1, 2}) EXPECT_EQ(phases[shard].shard(), shard);
  EXPECT_EQ(phases[0].problem(), "");
  EXPECT_EQ(phases[1].problem().rfind("UNAVAILABLE", 0), 0u) << phases[1].problem();
  // The coordinator asks for it, although the request left it open.
  EXPECT_EQ(phases[2].steps_size(), 1);
  for (const auto& link : links) link->Shutdown();
}

}  // namespace
}  // namespace kaon::coordinator
