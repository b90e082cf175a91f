// Pulls over NCCL from a real shard, over the fake fabric.
#include "client/transport/nccl_pull.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/transport/grpc_shard_channel.h"
#include "client/transport/nccl_shard_channel.h"
#include "kernels/mutex.h"
#include "kernels/nccl/abort_queue.h"
#include "tests/conformance/queued_source.h"
#include "tests/server/shard/transport/served_shard.h"
#include "tests/testing/fake_link.h"

namespace kaon::client {
namespace {

using kernels::FakeFabric;

// The parameters 0, 1 and 2. As fp32, the second one fills 6 messages: more than the 4 slots.
constexpr uint64_t kElements[] = {6, 6 * 262'144, 5};
constexpr uint64_t kMessages = 8;
constexpr uint64_t kBytes = (kElements[0] + kElements[1] + kElements[2]) * sizeof(float);

// Fails every pull, so that nothing but NCCL writes to a target.
class NoPulls : public ShardChannel {
 public:
  std::shared_ptr<PushStream> Push(const v1::PushOpen&, std::shared_ptr<PushSource>) override {
    return nullptr;
  }
  std::shared_ptr<PullStream> Pull(PullOptions options) override {
    options.done(absl::UnavailableError("no network"));
    return std::make_shared<Ended>();
  }

 private:
  class Ended : public PullStream {
   public:
    void Cancel() override {}
  };
};

// A pull of all parameters, in the order of their ids.
struct PullUnderWay {
  Mutex mu;
  CondVar changed;
  std::optional<absl::Status> status ABSL_GUARDED_BY(mu);
  std::vector<std::vector<std::byte>> tensors;
  std::shared_ptr<PullStream> stream;

  absl::Status Await() {
    MutexLock lock(mu);
    while (!status.has_value()) changed.Wait(mu);
    stream.reset();
    return *status;
  }
};

struct Fabric {
  const std::shared_ptr<FakeFabric> fabric_ = std::make_shared<FakeFabric>();
};

class NcclPullTest : private Fabric, public shard::ServedShardTest {
 protected:
  NcclPullTest() : ServedShardTest(/*shm_sessions=*/0, fabric_->NewLink()) {
    PlanStepOne(kElements[1]);
    grpc_ = CreateGrpcShardChannel(channel_, tracker_);
    Use(grpc_);
  }
  // Makes a channel whose pulls have this network.
  void Use(std::shared_ptr<ShardChannel> network,
           absl::Duration transfer_timeout = absl::Seconds(10)) {
    NcclShardChannelOptions options;
    options.name = "test";
    options.open = [connection = channel_](const v1::OpenNcclSessionRequest& request) {
      return OpenNcclSession(connection, request);
    };
    options.connection = channel_;
    options.link = fabric_->NewLink();
    options.aborts = std::make_shared<kernels::AbortQueue>(options.link);
    options.pushes = grpc_;
    options.pulls = std::move(network);
    options.session.transfer_timeout = transfer_timeout;
    options.session.revoke_timeout = absl::Milliseconds(20);
    options.retry_after = absl::ZeroDuration();
    options.tracker = tracker_;
    options.counters = counters_;
    nccl_ = CreateNcclShardChannel(std::move(options));
  }
  void TearDown() override {
    tracker_->AwaitNone();
    nccl_.reset();
  }
  FakeFabric& fabric() { return *fabric_; }

  // Pushes a step of rank 0, so that its pair has a session.
  void Push() {
    const std::vector<float> values = {1, 2, 3, 4, 5, 6};
    const auto source = std::make_shared<QueuedSource>();
    LeasedChunks message;
    message.chunks = {{{0, 0},
                       0,
                       6,
                       DType::kFloat32,
                       absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()), 24)}};
    message.chunks[0].device = 0;
    source->Queue(message);
    v1::PushFinish finish;
    finish.add_missing_parameters(1);
    source->Queue(finish);
    const auto stream = nccl_->Push(OpenRequest(0, 1).open(), source);
    const absl::Status status = source->AwaitDone();
    ASSERT_TRUE(status.ok()) << status;
    pushed_ = counters_->nccl_bytes;
    ASSERT_EQ(pushed_, 24u);
  }
  // Bytes that were pulled over NCCL.
  uint64_t pulled() const { return counters_->nccl_bytes - pushed_; }

  // The targets of the ids in `on_host` are in host memory.
  std::shared_ptr<PullUnderWay> StartPull(ShardChannel& channel, int device, DType dtype,
                                          uint64_t step = 0,
                                          std::optional<uint32_t> on_host = std::nullopt,
                                          std::function<void(uint64_t)> on_bytes = nullptr) {
    auto pull = std::make_shared<PullUnderWay>();
    PullOptions options;
    options.request = PullOf(step, {0, 1, 2});
    options.request.set_dtype(static_cast<v1::DType>(dtype));
    for (uint32_t id = 0; id < 3; ++id) {
      pull->tensors.emplace_back(kElements[id] * SizeOf(dtype), std::byte{0x55});
      options.targets.push_back({nullptr, kElements[id], dtype, id == on_host ? -1 : device});
    }
    for (uint32_t id = 0; id < 3; ++id) options.targets[id].elements = pull->tensors[id].data();
    options.on_bytes = std::move(on_bytes);
    options.done = [pull](const absl::Status& status) {
      MutexLock lock(pull->mu);
      pull->status = status;
      pull->changed.NotifyAll();
    };
    pull->stream = channel.Pull(std::move(options));
    return pull;
  }
  // Pulls version 0 to the device, and expects the bits of gRPC.
  void ExpectPull(DType dtype = DType::kFloat32) {
    const auto over_grpc = StartPull(*grpc_, -1, dtype);
    ASSERT_TRUE(over_grpc->Await().ok());
    const auto pull = StartPull(*nccl_, 0, dtype);
    const absl::Status status = pull->Await();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(pull->tensors == over_grpc->tensors);
  }

  // Does so until NCCL carries it: the aborts of earlier sessions may take a while.
  void ExpectPullOverNccl() {
    const uint64_t before = pulled();
    while (pulled() == before) ExpectPull();
    EXPECT_EQ(pulled(), before + kBytes);
  }

  const std::shared_ptr<CallTracker> tracker_ = std::make_shared<CallTracker>();
  const std::shared_ptr<TransferCounters> counters_ = std::make_shared<TransferCounters>();
  std::shared_ptr<ShardChannel> grpc_;
  std::shared_ptr<ShardChannel> nccl_;
  uint64_t pushed_ = 0;
};

TEST_F(NcclPullTest, CarriesTheBitsOfGrpcOverASessionOfItsOwn) {
  Push();
  ExpectPull();
  EXPECT_EQ(pulled(), kBytes);
  EXPECT_EQ(fabric().counts().bytes, 24 + kBytes);
  EXPECT_EQ(fabric().counts().transfers, 1 + kMessages);
  EXPECT_EQ(fabric().counts().inits, 4u);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) ExpectPull(dtype);
  // From pull to pull it keeps its session.
  EXPECT_EQ(pulled(), 3 * kBytes);
  EXPECT_EQ(fabric().counts().inits, 4u);
}

TEST_F(NcclPullTest, WaitsForPayloadsThatArriveAfterTheCall) {
  Push();
  for (const bool eager : {true, false}) {
    FakeFabric::Faults slow;
    slow.polls = 2;
    // The sends of the shard are done long before the worker's receives, or out of order.
    slow.delay = eager ? 50 : 0;
    slow.reorder = !eager;
    slow.eager = eager;
    fabric().SetFaults(slow);
    const uint64_t before = pulled();
    ExpectPull();
    EXPECT_EQ(pulled(), before + kBytes);
  }
}

TEST_F(NcclPullTest, TakesMoreMessagesThanTheSessionHasSlots) {
  Push();
  const uint64_t queued = fabric().counts().queued;
  // The shard sends the last 4 messages while the worker still has the first one in its slot.
  const auto pull =
      StartPull(*nccl_, 0, DType::kFloat32, 0, std::nullopt, [this, queued](uint64_t) {
        while (fabric().counts().queued < queued + 12) std::this_thread::yield();
      });
  const absl::Status status = pull->Await();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(pulled(), kBytes);
  ExpectPull();
  EXPECT_EQ(pulled(), 2 * kBytes);
  EXPECT_EQ(fabric().counts().inits, 4u);
}

TEST_F(NcclPullTest, UsesTheNetworkWithoutAPair) {
  ExpectPull();
  EXPECT_EQ(pulled(), 0u);
  EXPECT_EQ(fabric().counts().inits, 0u);
}

TEST_F(NcclPullTest, DividesAPullByWhereItsTargetsAre) {
  Push();
  const auto pull = StartPull(*nccl_, 0, DType::kFloat32, 0, /*on_host=*/1);
  ASSERT_TRUE(pull->Await().ok());
  EXPECT_EQ(pulled(), 11 * sizeof(float));
  const auto over_grpc = StartPull(*grpc_, -1, DType::kFloat32);
  ASSERT_TRUE(over_grpc->Await().ok());
  EXPECT_TRUE(pull->tensors == over_grpc->tensors);
}

TEST_F(NcclPullTest, APullThatWaitsForItsVersionHoldsUpNobody) {
  Push();
  const auto waiting = StartPull(*nccl_, 0, DType::kFloat32, /*step=*/1);
  while (fabric().counts().inits < 4) std::this_thread::yield();
  // It has the session.
  ExpectPull();
  EXPECT_EQ(pulled(), 0u);
  waiting->stream->Cancel();
  EXPECT_TRUE(absl::IsCancelled(waiting->Await()));
  ExpectPull();
  EXPECT_EQ(pulled(), kBytes);
  EXPECT_EQ(fabric().counts().inits, 4u);
}

TEST_F(NcclPullTest, UsesTheNetworkWithoutASessionForPulls) {
  Push();
  fabric().SetFaults({.init = absl::UnavailableError("no link")});
  ExpectPull();
  EXPECT_EQ(pulled(), 0u);
}

TEST_F(NcclPullTest, UsesTheNetworkAfterAnyFailureAndAnotherSessionNextTime) {
  Use(grpc_, /*transfer_timeout=*/absl::Milliseconds(100));
  Push();
  const uint64_t before = fabric().counts().transfers;
  std::vector<FakeFabric::Faults> all(1);
  all[0].never_done = true;
  // The first, the last with a slot of its own, the first in a slot of another, and the last.
  for (const uint64_t message : {uint64_t{1}, uint64_t{4}, uint64_t{5}, kMessages}) {
    all.emplace_back().fail_at = message;
    all.emplace_back().corrupt_at = message;
  }
  ExpectPullOverNccl();
  for (FakeFabric::Faults& faults : all) {
    const uint64_t transfers = fabric().counts().transfers;
    ASSERT_GT(transfers, before);
    if (faults.fail_at > 0) faults.fail_at += transfers;
    if (faults.corrupt_at > 0) faults.corrupt_at += transfers;
    fabric().SetFaults(faults);
    ExpectPull();
    fabric().SetFaults({});
    ExpectPullOverNccl();
  }
}

TEST_F(NcclPullTest, BytesThatChangedOnTheWayReachNoTensor) {
  Use(std::make_shared<NoPulls>());
  Push();
  fabric().SetFaults({.corrupt_at = fabric().counts().transfers + 2});
  const auto pull = StartPull(*nccl_, 0, DType::kFloat32);
  EXPECT_TRUE(absl::IsUnavailable(pull->Await()));
  EXPECT_EQ(pull->tensors[1], std::vector<std::byte>(pull->tensors[1].size(), std::byte{0x55}));
}

TEST_F(NcclPullTest, ACancelledPullLeavesNoTransferToTheNext) {
  Use(grpc_, /*transfer_timeout=*/absl::Milliseconds(100));
  Push();
  ExpectPullOverNccl();
  FakeFabric::Faults never;
  never.never_done = true;
  fabric().SetFaults(never);
  const uint64_t queued = fabric().counts().queued;
  const auto pull = StartPull(*nccl_, 0, DType::kFloat32);
  while (fabric().counts().queued < queued + 2) std::this_thread::yield();
  pull->stream->Cancel();
  EXPECT_TRUE(absl::IsCancelled(pull->Await()));
  fabric().SetFaults({});
  ExpectPullOverNccl();
}

TEST_F(NcclPullTest, EndsInTheBitsOfGrpcWhateverFaultsItMeets) {
  Use(grpc_, /*transfer_timeout=*/absl::Milliseconds(100));
  Push();
  std::mt19937 random(20261128);
  for (int i = 0; i < 40; ++i) {
    FakeFabric::Faults faults;
    const uint64_t next = fabric().counts().transfers + 1 + random() % kMessages;
    faults.eager = random() % 2 == 0;
    faults.reorder = random() % 2 == 0;
    faults.delay = static_cast<int>(random() % 4);
    faults.polls = static_cast<int>(random() % 4);
    if (random() % 3 == 0) faults.fail_at = next;
    if (random() % 3 == 0) faults.corrupt_at = next;
    faults.abort_hangs = random() % 4 == 0;
    faults.never_done = random() % 8 == 0;
    fabric().SetFaults(faults);
    const auto dropped = random() % 3 == 0 ? StartPull(*nccl_, 0, DType::kFloat32) : nullptr;
    if (dropped != nullptr) dropped->stream->Cancel();
    ExpectPull();
    // It was cancelled, perhaps after its end.
    if (dropped != nullptr) dropped->Await().IgnoreError();
    fabric().ReleaseAborts();
  }
  fabric().SetFaults({});
  ExpectPullOverNccl();
}

}  // namespace
}  // namespace kaon::client
