#include "client/transport/nccl_shard_channel.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>

#include "client/transport/grpc_shard_channel.h"
#include "tests/conformance/shard_channel_conformance.h"
#include "tests/testing/fake_link.h"

namespace kaon::client {
namespace {

using kernels::FakeFabric;

// Says that every tensor is on device 0, so that the suite's calls are those of a trainer on a GPU.
class DeviceTensors : public ShardChannel {
 public:
  explicit DeviceTensors(std::shared_ptr<ShardChannel> to) : to_(std::move(to)) {}

  std::shared_ptr<PushStream> Push(const v1::PushOpen& open,
                                   std::shared_ptr<PushSource> source) override {
    return to_->Push(open, std::make_shared<Source>(std::move(source)));
  }
  std::shared_ptr<PullStream> Pull(PullOptions options) override {
    for (MutableTensorView& target : options.targets) target.device = 0;
    return to_->Pull(std::move(options));
  }

 private:
  class Source : public PushSource {
   public:
    explicit Source(std::shared_ptr<PushSource> from) : from_(std::move(from)) {}
    absl::Status OnOpened(const v1::PushOpened& opened) override { return from_->OnOpened(opened); }
    void OnCredit(uint64_t bytes) override { from_->OnCredit(bytes); }
    PushMessage Next() override {
      PushMessage message = from_->Next();
      if (auto* const chunks = std::get_if<LeasedChunks>(&message)) {
        for (ChunkToSend& chunk : chunks->chunks) chunk.device = 0;
      }
      return message;
    }
    void OnDone(const absl::Status& status) override { from_->OnDone(status); }

   private:
    const std::shared_ptr<PushSource> from_;
  };

  const std::shared_ptr<ShardChannel> to_;
};

NcclShardChannelOptions OptionsOf(const std::shared_ptr<grpc::Channel>& connection,
                                  const std::shared_ptr<CallTracker>& tracker,
                                  const std::shared_ptr<TransferCounters>& counters,
                                  FakeFabric& fabric) {
  NcclShardChannelOptions options;
  options.name = "test";
  options.open = [connection](const v1::OpenNcclSessionRequest& request) {
    return OpenNcclSession(connection, request);
  };
  options.connection = connection;
  options.link = fabric.NewLink();
  options.aborts = std::make_shared<kernels::AbortQueue>(options.link);
  options.pushes = CreateGrpcShardChannel(connection, tracker);
  options.pulls = options.pushes;
  options.tracker = tracker;
  options.counters = counters;
  return options;
}

// Without a session, a push fails, so only NCCL can pass the suite.
std::shared_ptr<ShardChannel> MakeRequired(std::shared_ptr<grpc::Channel> connection,
                                           std::shared_ptr<CallTracker> tracker,
                                           std::shared_ptr<TransferCounters> counters,
                                           FakeFabric& fabric) {
  NcclShardChannelOptions options = OptionsOf(connection, tracker, counters, fabric);
  options.required = true;
  return std::make_shared<DeviceTensors>(CreateNcclShardChannel(std::move(options)));
}

// The same over a fabric that is slow and finishes transfers out of order.
std::shared_ptr<ShardChannel> MakeSlow(std::shared_ptr<grpc::Channel> connection,
                                       std::shared_ptr<CallTracker> tracker,
                                       std::shared_ptr<TransferCounters> counters,
                                       FakeFabric& fabric) {
  FakeFabric::Faults faults;
  faults.polls = 3;
  faults.delay = 5;
  faults.reorder = true;
  fabric.SetFaults(faults);
  return MakeRequired(std::move(connection), std::move(tracker), std::move(counters), fabric);
}

// A shard without NCCL: tensors leave the device through host memory.
std::shared_ptr<ShardChannel> MakeRefused(std::shared_ptr<grpc::Channel> connection,
                                          std::shared_ptr<CallTracker> tracker,
                                          std::shared_ptr<TransferCounters> counters,
                                          FakeFabric& fabric) {
  NcclShardChannelOptions options = OptionsOf(connection, tracker, counters, fabric);
  options.open = [](const v1::OpenNcclSessionRequest&) {
    return absl::FailedPreconditionError("this shard has no NCCL");
  };
  return std::make_shared<DeviceTensors>(CreateNcclShardChannel(std::move(options)));
}

INSTANTIATE_TEST_SUITE_P(Nccl, ShardChannelConformance, testing::Values(MakeRequired));
INSTANTIATE_TEST_SUITE_P(SlowNccl, ShardChannelConformance, testing::Values(MakeSlow));
INSTANTIATE_TEST_SUITE_P(RefusedNccl, ShardChannelConformance, testing::Values(MakeRefused));

class NcclShardChannelTest : public ShardChannelConformance {
 protected:
  // Replaces the channel by one that retries as told and gives up soon.
  void Use(bool required, absl::Duration retry_after = absl::ZeroDuration()) {
    shard_.reset();
    NcclShardChannelOptions options = OptionsOf(channel_, tracker_, counters_, devices());
    options.required = required;
    options.retry_after = retry_after;
    options.session.connect_timeout = absl::Milliseconds(500);
    options.session.transfer_timeout = absl::Milliseconds(100);
    options.session.revoke_timeout = absl::Milliseconds(20);
    shard_ = std::make_shared<DeviceTensors>(CreateNcclShardChannel(std::move(options)));
  }
  absl::Status PushWholeStep(uint32_t rank) {
    const auto source = WholeStep();
    const auto stream = shard_->Push(Open(rank), source);
    return source->AwaitDone();
  }
  // Pushes what the shard lacks of the whole step.
  absl::Status PushTheRest(uint32_t rank) { return PushTheRest(Open(rank)); }
  absl::Status PushTheRest(const v1::PushOpen& open) {
    const auto source = std::make_shared<QueuedSource>();
    const auto stream = shard_->Push(open, source);
    const v1::PushOpened opened = source->AwaitOpened();
    const auto has = [&opened](uint32_t parameter) {
      for (const v1::ReceivedChunks& received : opened.received()) {
        if (received.parameter_id() == parameter) return true;
      }
      return false;
    };
    if (!has(0)) source->Queue(Leased({Chunk(0, {1, 2, 3, 4, 5, 6})}));
    if (!has(1)) source->Queue(Leased({Chunk(1, {1, 2, 3, 4})}));
    source->Queue(v1::PushFinish());
    stream->Resume();
    return source->AwaitDone();
  }
  // Expects that the shard folded the whole step of both ranks once.
  void ExpectFolded() {
    const v1::Prepared prepared = coordinator_->Receive().prepared();
    ASSERT_EQ(prepared.sums_size(), 2);
    EXPECT_EQ(prepared.sums(0).sum_squares(), 91);
    EXPECT_EQ(prepared.sums(1).sum_squares(), 30);
  }
};

TEST_P(NcclShardChannelTest, CarriesPayloadsOverOneSessionAndNothingElse) {
  ASSERT_TRUE(PushWholeStep(0).ok());
  EXPECT_EQ(counters_->nccl_bytes, 40u);
  EXPECT_EQ(devices().counts().bytes, 40u);
  EXPECT_EQ(devices().counts().transfers, 2u);
  EXPECT_EQ(devices().counts().inits, 2u);
}

TEST_P(NcclShardChannelTest, KeepsItsSessionFromPushToPush) {
  // A new round asks for all of it again.
  for (uint64_t round = 2; round < 6; ++round) {
    ASSERT_TRUE(PushWholeStep(0).ok());
    v1::StepPlan reopened = shard::TrainPlan(1, 1, round);
    reopened.mutable_step()->mutable_members(0)->set_token_weight(static_cast<double>(round));
    coordinator_->Send(PlanOf(reopened));
    // Answered after the plan.
    ASSERT_TRUE(coordinator_->Ask(PromiseOf(1)).has_state());
  }
  ASSERT_TRUE(PushWholeStep(0).ok());
  EXPECT_EQ(counters_->nccl_bytes, 200u);
  EXPECT_EQ(devices().counts().inits, 2u);
}

TEST_P(NcclShardChannelTest, WaitsForTheEventOfATensorOverNcclAndOverTheNetwork) {
  for (uint32_t rank : {0, 1}) {
    Use(/*required=*/false, /*retry_after=*/absl::Hours(1));
    if (rank == 1) devices().SetFaults({.init = absl::UnavailableError("no link")});
    std::vector<float> values(6, -1);
    kernels::FakeEvent event;
    int asked = 0;
    event.ready = [&asked] { return ++asked > 3; };
    event.work = [&values, &asked] {
      EXPECT_GT(asked, 3) << "a wait on the device may take too long";
      values = {1, 2, 3, 4, 5, 6};
    };
    ChunkToSend chunk = Chunk(0, values);
    chunk.payload = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()), 24);
    chunk.ready_event = &event;
    const auto source = std::make_shared<QueuedSource>();
    source->Queue(Leased({chunk, Chunk(1, {1, 2, 3, 4})}));
    source->Queue(v1::PushFinish());
    const auto stream = shard_->Push(Open(rank), source);
    ASSERT_TRUE(source->AwaitDone().ok());
  }
  EXPECT_EQ(counters_->nccl_bytes, 40u);
  ExpectFolded();
}

TEST_P(NcclShardChannelTest, MixesTensorsOfDeviceAndHostInOnePush) {
  const auto source = std::make_shared<QueuedSource>();
  ChunkToSend on_device = Chunk(0, {1, 2, 3, 4, 5, 6});
  on_device.device = 0;
  source->Queue(Leased({on_device, Chunk(1, {1, 2, 3, 4})}));
  source->Queue(v1::PushFinish());
  NcclShardChannelOptions options = OptionsOf(channel_, tracker_, counters_, devices());
  options.required = true;
  shard_ = CreateNcclShardChannel(std::move(options));
  const auto stream = shard_->Push(Open(1), source);
  ASSERT_TRUE(source->AwaitDone().ok());
  EXPECT_EQ(counters_->nccl_bytes, 24u);
  ASSERT_TRUE(PushWholeStep(0).ok());
  ExpectFolded();
}

TEST_P(NcclShardChannelTest, ATransferThatNeverEndsEndsThePushAndTheNextHasAnotherSession) {
  Use(/*required=*/true);
  devices().SetFaults({.never_done = true});
  const absl::Status status = PushWholeStep(0);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("NCCL: no transfer was done within 100ms"), std::string::npos)
      << status;
  devices().SetFaults({});
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(PushTheRest(rank).ok());
  ExpectFolded();
}

TEST_P(NcclShardChannelTest, ASessionThatEndedWhileItWasIdleCostsNoPush) {
  Use(/*required=*/true);
  ASSERT_TRUE(PushWholeStep(0).ok());
  // The shard's process ends between two steps.
  devices().KillRank(0);
  v1::StepPlan reopened = shard::TrainPlan(1, 1, 2);
  reopened.mutable_step()->mutable_members(0)->set_token_weight(2);
  coordinator_->Send(PlanOf(reopened));
  ASSERT_TRUE(coordinator_->Ask(PromiseOf(1)).has_state());
  ASSERT_TRUE(PushWholeStep(0).ok());
  EXPECT_EQ(counters_->nccl_bytes, 80u);
  EXPECT_EQ(devices().counts().inits, 4u);
}

TEST_P(NcclShardChannelTest, ALostLinkLosesNothingAndFoldsNothingTwice) {
  Use(/*required=*/true);
  devices().SetFaults({.fail_at = 2});
  EXPECT_TRUE(absl::IsUnavailable(PushWholeStep(0)));
  devices().SetFaults({});
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(PushTheRest(rank).ok());
  ExpectFolded();
}

TEST_P(NcclShardChannelTest, AfterAFailureTheNetworkCarriesTheRest) {
  Use(/*required=*/false, /*retry_after=*/absl::Hours(1));
  devices().SetFaults({.never_done = true});
  EXPECT_TRUE(absl::IsUnavailable(PushWholeStep(0)));
  const uint64_t bytes = counters_->nccl_bytes;
  devices().SetFaults({});
  ASSERT_TRUE(PushTheRest(0).ok());
  EXPECT_EQ(counters_->nccl_bytes, bytes);
  // Rank 1 has a lane of its own, which has not failed.
  ASSERT_TRUE(PushTheRest(1).ok());
  EXPECT_EQ(counters_->nccl_bytes, bytes + 40);
  ExpectFolded();
}

TEST_P(NcclShardChannelTest, BytesThatChangedOnTheWayAreNotFolded) {
  Use(/*required=*/true);
  devices().SetFaults({.corrupt_at = 1});
  const absl::Status status = PushWholeStep(0);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("arrived with digest"), std::string::npos) << status;
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(PushTheRest(rank).ok());
  ExpectFolded();
}

TEST_P(NcclShardChannelTest, AfterBytesThatChangedTheNetworkCarriesTheRest) {
  Use(/*required=*/false, /*retry_after=*/absl::Hours(1));
  // The worker's sends are done; only the shard knows that they went wrong.
  devices().SetFaults({.corrupt_at = 1, .eager = true});
  EXPECT_TRUE(absl::IsUnavailable(PushWholeStep(0)));
  const uint64_t bytes = counters_->nccl_bytes;
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(PushTheRest(rank).ok());
  // Rank 1 has a lane of its own, which has not failed.
  EXPECT_EQ(counters_->nccl_bytes, bytes + 40);
  ExpectFolded();
}

TEST_P(NcclShardChannelTest, SendsThatAreDoneBeforeTheirReceivesArriveOnce) {
  Use(/*required=*/true);
  devices().SetFaults({.eager = true});
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(PushWholeStep(rank).ok());
  EXPECT_EQ(counters_->nccl_bytes, 80u);
  ExpectFolded();
}

TEST_P(NcclShardChannelTest, AWorkerWithoutALinkToTheShardUsesTheNetwork) {
  Use(/*required=*/false, /*retry_after=*/absl::Hours(1));
  devices().SetFaults({.init = absl::FailedPreconditionError("no driver")});
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(PushWholeStep(rank).ok());
  EXPECT_EQ(counters_->nccl_bytes, 0u);
  ExpectFolded();
}

TEST_P(NcclShardChannelTest, SessionsThatAreNotAbortedYetAreBounded) {
  Use(/*required=*/false);
  devices().SetFaults({.fail_at = 1, .abort_hangs = true});
  int failures = 0;
  while (!PushTheRest(0).ok()) ++failures;
  // The network carries the push once no session can be opened.
  EXPECT_LE(failures, 4);
  EXPECT_GE(failures, 1);
  EXPECT_LE(devices().counts().allocations, 2u * 4);
  devices().SetFaults({});
  devices().ReleaseAborts();
  ASSERT_TRUE(PushTheRest(1).ok());
  ExpectFolded();
}

TEST_P(NcclShardChannelTest, APushThatIsGivenUpLeavesNoTransferToTheNext) {
  Use(/*required=*/true);
  for (int i = 0; i < 5; ++i) {
    const auto source = std::make_shared<QueuedSource>();
    source->Queue(Leased({Chunk(0, {9, 9, 9, 9, 9, 9})}));
    const auto stream = shard_->Push(Open(0), source);
    if (i % 2 == 0) source->AwaitOpened();
    // Perhaps before, perhaps after the shard has posted the receive.
    stream->Cancel();
    EXPECT_FALSE(source->AwaitDone().ok());
  }
  v1::StepPlan reopened = shard::TrainPlan(1, 1, 2);
  reopened.mutable_step()->mutable_members(0)->mutable_attempt()->set_number(9);
  coordinator_->Send(PlanOf(reopened));
  ASSERT_TRUE(coordinator_->Ask(PromiseOf(1)).has_state());
  v1::PushOpen open = Open(0);
  open.mutable_attempt()->set_number(9);
  const auto source = WholeStep();
  const auto stream = shard_->Push(open, source);
  ASSERT_TRUE(source->AwaitDone().ok());
  ASSERT_TRUE(PushTheRest(1).ok());
  ExpectFolded();
}

// One fault of the fabric, or none, for the transfers to come.
FakeFabric::Faults RandomFaults(std::mt19937& random, uint64_t transfers) {
  FakeFabric::Faults faults;
  const uint64_t next = transfers + 1 + random() % 3;
  faults.eager = random() % 2 == 0;
  switch (random() % 8) {
    case 0:
      faults.fail_at = next;
      break;
    case 1:
      faults.corrupt_at = next;
      break;
    case 2:
      faults.never_done = true;
      break;
    case 3:
      faults.init = absl::UnavailableError("no link");
      break;
    case 4:
      faults.fail_at = next;
      faults.abort_hangs = true;
      break;
    case 5:
      faults.reorder = true;
      break;
    default:
      faults.polls = static_cast<int>(random() % 4);
      faults.delay = static_cast<int>(random() % 4);
  }
  return faults;
}

TEST_P(NcclShardChannelTest, AStepIsFoldedOnceWhateverFaultsItsPushesMeet) {
  Use(/*required=*/false);
  std::mt19937 random(20261128);
  v1::PushOpen open = Open(0);
  for (uint64_t round = 2; round < 20; ++round) {
    v1::StepPlan reopened = shard::TrainPlan(1, 1, round);
    reopened.mutable_step()->mutable_members(0)->mutable_attempt()->set_number(round + 7);
    coordinator_->Send(PlanOf(reopened));
    ASSERT_TRUE(coordinator_->Ask(PromiseOf(1)).has_state());
    open.mutable_attempt()->set_number(round + 7);
    absl::Status status = absl::UnknownError("not pushed");
    while (!status.ok()) {
      devices().SetFaults(RandomFaults(random, devices().counts().transfers));
      status = PushTheRest(open);
      EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
      devices().ReleaseAborts();
    }
  }
  devices().SetFaults({});
  ASSERT_TRUE(PushTheRest(1).ok());
  ExpectFolded();
}

INSTANTIATE_TEST_SUITE_P(Nccl, NcclShardChannelTest, testing::Values(MakeRequired));

}  // namespace
}  // namespace kaon::client
