#include "server/coordinator/shard_link.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "kernels/mutex.h"
#include "tests/server/coordinator/fake_shard.h"

namespace kaon::coordinator {
namespace {

// Counts what the link reports.
struct Seen {
  Mutex mu;
  CondVar changed;
  int connected ABSL_GUARDED_BY(mu) = 0;
  int disconnected ABSL_GUARDED_BY(mu) = 0;
  int probed ABSL_GUARDED_BY(mu) = 0;
  int promised ABSL_GUARDED_BY(mu) = 0;

  void Add(int& count) {
    MutexLock lock(mu);
    ++count;
    changed.NotifyAll();
  }
  void WaitFor(const int& count, int value) {
    MutexLock lock(mu);
    while (count < value) changed.Wait(mu);
  }
};

class ShardLinkTest : public ::testing::Test {
 protected:
  std::unique_ptr<ShardLink> LinkTo(const std::string& address) {
    ShardLinkOptions options;
    options.channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    ShardLinkEvents events;
    events.connected = [this] { seen_.Add(seen_.connected); };
    events.disconnected = [this] { seen_.Add(seen_.disconnected); };
    events.message = [this](v1::ShardToCoordinator message) {
      if (message.has_probed()) seen_.Add(seen_.probed);
      if (message.has_state()) seen_.Add(seen_.promised);
    };
    return std::make_unique<ShardLink>(std::move(options), std::move(events));
  }
  static v1::CoordinatorToShard Probe() {
    v1::CoordinatorToShard message;
    message.mutable_probe();
    return message;
  }
  static v1::CoordinatorToShard Promise() {
    v1::CoordinatorToShard message;
    message.mutable_ballot()->set_counter(1);
    message.mutable_promise();
    return message;
  }

  Seen seen_;
};

TEST_F(ShardLinkTest, ConnectsWithAProbeAndCarriesMessagesBothWays) {
  FakeShard shard;
  const auto link = LinkTo(shard.address());
  link->Start(Probe());
  seen_.WaitFor(seen_.connected, 1);
  seen_.WaitFor(seen_.probed, 1);
  for (int i = 0; i < 10; ++i) link->Send(Promise());
  seen_.WaitFor(seen_.promised, 10);
}

TEST_F(ShardLinkTest, ConnectsAgainWhenTheShardComesBack) {
  auto shard = std::make_unique<FakeShard>();
  const std::string address = shard->address();
  const auto link = LinkTo(address);
  link->Start(Probe());
  seen_.WaitFor(seen_.connected, 1);
  shard.reset();
  seen_.WaitFor(seen_.disconnected, 1);
  link->Send(Promise());
  shard = std::make_unique<FakeShard>(address);
  seen_.WaitFor(seen_.connected, 2);
  link->Shutdown();
}

TEST_F(ShardLinkTest, DescribesTheShardWithoutAStream) {
  FakeShard shard;
  const auto link = LinkTo(shard.address());
  std::promise<absl::Status> described;
  link->DescribeShard({}, absl::Seconds(20), [&described](const auto& response) {
    described.set_value(response.status());
  });
  EXPECT_TRUE(described.get_future().get().ok());
}

TEST_F(ShardLinkTest, UnaryCallToNobodyFailsWithinItsDeadline) {
  const auto link = LinkTo("127.0.0.1:1");
  std::promise<absl::Status> read;
  link->ReadHistory({}, absl::Milliseconds(200),
                    [&read](const auto& response) { read.set_value(response.status()); });
  const absl::StatusCode code = read.get_future().get().code();
  EXPECT_TRUE(code == absl::StatusCode::kUnavailable ||
              code == absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ShardLinkTest, ShutdownEndsEverythingAndLaterCallsAreUnavailable) {
  const auto link = LinkTo("127.0.0.1:1");
  link->Start(Probe());
  link->Shutdown();
  link->Shutdown();
  link->Send(Promise());
  absl::Status described;
  link->DescribeShard({}, absl::Seconds(20),
                      [&described](const auto& response) { described = response.status(); });
  EXPECT_EQ(described.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace kaon::coordinator
