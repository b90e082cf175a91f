#include "server/coordinator/shard_link.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "kernels/mutex.h"
#include "tests/server/coordinator/fake_shard.h"

namespace kaon::coordinator {
namespace {

enum Event { kConnected, kDisconnected, kProbed, kPromised, kNumEvents };

// Counts the reports of the link.
struct Seen {
  Mutex mu;
  CondVar changed;
  int counts[kNumEvents] ABSL_GUARDED_BY(mu) = {};

  void Add(Event event) {
    MutexLock lock(mu);
    ++counts[event];
    changed.NotifyAll();
  }
  void WaitFor(Event event, int count) {
    MutexLock lock(mu);
    while (counts[event] < count) changed.Wait(mu);
  }
};

class ShardLinkTest : public ::testing::Test {
 protected:
  std::unique_ptr<ShardLink> LinkTo(const std::string& address) {
    ShardLinkOptions options;
    options.channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    ShardLinkEvents events;
    events.connected = [this] { seen_.Add(kConnected); };
    events.disconnected = [this](const absl::Status&) { seen_.Add(kDisconnected); };
    events.message = [this](v1::ShardToCoordinator message) {
      if (message.has_probed()) seen_.Add(kProbed);
      if (message.has_state()) seen_.Add(kPromised);
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
  seen_.WaitFor(kConnected, 1);
  seen_.WaitFor(kProbed, 1);
  for (int i = 0; i < 10; ++i) link->Send(Promise());
  seen_.WaitFor(kPromised, 10);
}

TEST_F(ShardLinkTest, ConnectsAgainWhenTheShardComesBack) {
  auto shard = std::make_unique<FakeShard>();
  const std::string address = shard->address();
  const auto link = LinkTo(address);
  link->Start(Probe());
  seen_.WaitFor(kConnected, 1);
  shard.reset();
  seen_.WaitFor(kDisconnected, 1);
  link->Send(Promise());
  shard = std::make_unique<FakeShard>(address);
  seen_.WaitFor(kConnected, 2);
  link->Shutdown();
}

// Answers the probe, and reads nothing more until it is let go.
class StalledShard : public v1::ShardControl::Service {
 public:
  StalledShard() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~StalledShard() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void LetGo() {
    MutexLock lock(mu_);
    stalled_ = false;
    changed_.NotifyAll();
  }
  // Blocks until the message without a plan arrives. Returns the number of plans before it.
  int AwaitPlans() {
    MutexLock lock(mu_);
    while (!ended_) changed_.Wait(mu_);
    return plans_;
  }

 private:
  grpc::Status Control(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::ShardToCoordinator, v1::CoordinatorToShard>* stream) override {
    v1::CoordinatorToShard message;
    stream->Read(&message);
    v1::ShardToCoordinator answer;
    answer.mutable_probed();
    stream->Write(answer);
    {
      MutexLock lock(mu_);
      while (stalled_) changed_.Wait(mu_);
    }
    while (stream->Read(&message)) {
      MutexLock lock(mu_);
      plans_ += message.has_plan();
      ended_ |= !message.has_plan();
      changed_.NotifyAll();
    }
    return grpc::Status::OK;
  }

  Mutex mu_;
  CondVar changed_;
  bool stalled_ ABSL_GUARDED_BY(mu_) = true;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  int plans_ ABSL_GUARDED_BY(mu_) = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// If a shard is slow, only one large message waits in addition to the one in flight (P17).
TEST_F(ShardLinkTest, KeepsFewLargeMessagesForAShardThatDoesNotRead) {
  StalledShard shard;
  const auto link = LinkTo(shard.address());
  link->Start(Probe());
  seen_.WaitFor(kProbed, 1);
  v1::CoordinatorToShard plan;
  plan.mutable_plan()->set_job(std::string(8 << 20, 'x'));
  for (int i = 0; i < 10; ++i) link->Send(plan);
  shard.LetGo();
  // The message is resent until it arrives, because messages beyond the limit are dropped.
  std::atomic<bool> ended{false};
  std::thread prober([&] {
    while (!ended) link->Send(Promise());
  });
  EXPECT_EQ(shard.AwaitPlans(), 2);
  ended = true;
  prober.join();
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
