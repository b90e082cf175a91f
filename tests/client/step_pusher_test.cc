#include "client/step_pusher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kaon::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kWindow = 8 << 20;

// A stream whose shard is the test. Sends available messages at once, as gRPC's stream does.
class FakeStream : public PushStream {
 public:
  explicit FakeStream(std::shared_ptr<PushSource> source) : source_(std::move(source)) {}

  void Resume() override {
    MutexLock lock(mu_);
    while (true) {
      PushMessage message = source_->Next();
      if (auto* leased = std::get_if<LeasedChunks>(&message)) {
        for (const ChunkToSend& chunk : leased->chunks) sent_.push_back(chunk.key);
        // Memory that a transport has not released yet.
        leases_.push_back(leased->lease);
      } else if (std::holds_alternative<v1::PushFinish>(message)) {
        finished_ = true;
      } else {
        return;
      }
    }
  }
  void Cancel() override { cancelled_ = true; }

  void Open(uint64_t credit_bytes = kWindow) {
    v1::PushOpened opened;
    opened.set_credit_bytes(credit_bytes);
    ASSERT_TRUE(source_->OnOpened(opened).ok());
    Resume();
  }
  PushSource& source() { return *source_; }
  std::vector<ContributionKey> sent() {
    MutexLock lock(mu_);
    return sent_;
  }
  bool finished() const { return finished_; }
  bool cancelled() const { return cancelled_; }
  void Release() { leases_.clear(); }

 private:
  const std::shared_ptr<PushSource> source_;
  Mutex mu_;
  std::vector<ContributionKey> sent_;
  std::vector<std::shared_ptr<const void>> leases_;
  bool finished_ = false;
  bool cancelled_ = false;
};

class FakeChannel : public ShardChannel {
 public:
  std::shared_ptr<PushStream> Push(const v1::PushOpen& open,
                                   std::shared_ptr<PushSource> source) override {
    opens.push_back(open);
    streams.push_back(std::make_shared<FakeStream>(std::move(source)));
    return streams.back();
  }
  std::shared_ptr<PullStream> Pull(PullOptions) override { return nullptr; }

  FakeStream& last() { return *streams.back(); }

  std::vector<v1::PushOpen> opens;
  std::vector<std::shared_ptr<FakeStream>> streams;
};

class StepPusherTest : public ::testing::Test {
 protected:
  StepPusherTest() : pusher_(std::make_shared<StepPusher>(Options())) {}
  // The pusher and its streams own each other until it is closed.
  ~StepPusherTest() override {
    pusher_->Close(absl::CancelledError("the test is over"), [] {});
  }

  StepPusherOptions Options() {
    StepPusherOptions options;
    options.job = "small";
    options.step = 7;
    options.num_shards = 2;
    options.max_bytes_in_flight = 1 << 20;
    options.counters = std::make_shared<TransferCounters>();
    return options;
  }

  Future<Done> Push(uint32_t shard, uint32_t parameter, uint64_t num_elements = 4) {
    const Promise<Done> accepted;
    pusher_->Push(shard, {parameter, 0}, {memory_.data(), num_elements, DType::kFloat32}, accepted);
    return accepted.future();
  }

  // The stream to `shard`, open; its end is appended to ends_.
  FakeStream& Start(uint32_t shard, uint64_t round = 1, uint64_t credit_bytes = kWindow) {
    StartPush start;
    start.shard = shard;
    start.round = round;
    pusher_->StartStream(start, channel_, [this](const absl::Status& s) { ends_.push_back(s); });
    channel_.last().Open(credit_bytes);
    return channel_.last();
  }

  std::vector<float> memory_ = std::vector<float>(1 << 18);
  FakeChannel channel_;
  std::shared_ptr<StepPusher> pusher_;
  std::vector<absl::Status> ends_;
};

TEST_F(StepPusherTest, SendsEachShardItsOwn) {
  (void)Push(0, 3);
  (void)Push(1, 4);
  EXPECT_THAT(Start(0).sent(), ElementsAre(ContributionKey(3, 0)));
  EXPECT_THAT(Start(1).sent(), ElementsAre(ContributionKey(4, 0)));
  EXPECT_EQ(channel_.opens[0].step(), 7u);
  EXPECT_EQ(channel_.opens[0].job(), "small");
}

TEST_F(StepPusherTest, SendsWhatIsQueuedWhileTheStreamIsOpen) {
  FakeStream& stream = Start(0);
  EXPECT_THAT(stream.sent(), IsEmpty());
  (void)Push(0, 3);
  EXPECT_THAT(stream.sent(), ElementsAre(ContributionKey(3, 0)));
}

// Credit that a shard's previous process granted does not use up the budget of bytes in flight.
TEST_F(StepPusherTest, SendsInASmallerWindowToAShardThatWasStartedAgain) {
  (void)Push(0, 3);
  Start(0);
  EXPECT_THAT(Start(0, 2, kWindow / 16).sent(), ElementsAre(ContributionKey(3, 0)));
}

TEST_F(StepPusherTest, FinishesOnceEverythingIsSent) {
  (void)Push(0, 3);
  FakeStream& stream = Start(0);
  EXPECT_FALSE(stream.finished());
  pusher_->Finish(std::vector<v1::PushFinish>(2));
  EXPECT_TRUE(stream.finished());
}

TEST_F(StepPusherTest, FinishesAShardThatHasNoParameters) {
  pusher_->Finish(std::vector<v1::PushFinish>(2));
  EXPECT_TRUE(Start(1).finished());
}

TEST_F(StepPusherTest, KeepsAllShardsTogetherWithinTheLimitInFlight) {
  (void)Push(0, 3, 1 << 18);
  (void)Push(1, 4, 1 << 18);
  FakeStream& first = Start(0);
  FakeStream& second = Start(1);
  EXPECT_EQ(first.sent().size(), 1u);
  EXPECT_THAT(second.sent(), IsEmpty());
  first.source().OnCredit(1 << 20);
  EXPECT_EQ(second.sent().size(), 1u);
}

TEST_F(StepPusherTest, GivesTheBudgetOfAnEndedStreamToTheOthers) {
  (void)Push(0, 3, 1 << 18);
  (void)Push(1, 4, 1 << 18);
  FakeStream& first = Start(0);
  FakeStream& second = Start(1);
  first.source().OnDone(absl::UnavailableError("reset"));
  EXPECT_EQ(second.sent().size(), 1u);
  EXPECT_THAT(ends_, ElementsAre(absl::UnavailableError("reset")));
}

TEST_F(StepPusherTest, SendsAgainOnTheNextStream) {
  (void)Push(0, 3);
  Start(0).source().OnDone(absl::UnavailableError("reset"));
  EXPECT_THAT(Start(0).sent(), ElementsAre(ContributionKey(3, 0)));
}

TEST_F(StepPusherTest, IgnoresAStreamItReplaced) {
  (void)Push(0, 3);
  Start(0);
  const std::shared_ptr<FakeStream> old = channel_.streams[0];
  FakeStream& current = Start(0, /*round=*/2);
  EXPECT_TRUE(old->cancelled());
  old->source().OnCredit(16);
  old->source().OnDone(absl::DataLossError("late"));
  (void)Push(0, 5);
  EXPECT_THAT(old->sent(), ElementsAre(ContributionKey(3, 0)));
  EXPECT_THAT(current.sent(), ElementsAre(ContributionKey(3, 0), ContributionKey(5, 0)));
  EXPECT_THAT(ends_, IsEmpty());
}

TEST_F(StepPusherTest, SettlesAContributionWhenItIsCredited) {
  Future<Done> pushed = Push(0, 3);
  FakeStream& stream = Start(0);
  EXPECT_FALSE(pushed.Ready());
  stream.source().OnCredit(16);
  EXPECT_TRUE(pushed.Ready());
}

TEST_F(StepPusherTest, TellsWhichShardsLackContributions) {
  (void)Push(0, 3);
  (void)Push(1, 4);
  FakeStream& stream = Start(0);
  Start(1);
  EXPECT_THAT(pusher_->LackingShards(), ElementsAre(0, 1));
  stream.source().OnCredit(16);
  EXPECT_THAT(pusher_->LackingShards(), ElementsAre(1));
}

TEST_F(StepPusherTest, SettlesEverythingWithAConfirmedFinish) {
  Future<Done> pushed = Push(0, 3);
  Start(0).source().OnDone(absl::OkStatus());
  ASSERT_TRUE(pushed.Ready());
  EXPECT_TRUE(pushed.Get().ok());
}

TEST_F(StepPusherTest, SettlesWhatIsLeftWithTheOutcome) {
  Future<Done> before = Push(0, 3);
  pusher_->Close(absl::DataLossError("shard 1 lost its state"), [] {});
  Future<Done> after = Push(0, 4);
  ASSERT_TRUE(before.Ready());
  EXPECT_EQ(before.Get().status().code(), StatusCode::kDataLoss);
  ASSERT_TRUE(after.Ready());
  EXPECT_EQ(after.Get().status().code(), StatusCode::kDataLoss);
}

TEST_F(StepPusherTest, GivesTheMemoryBackWhenTheLastSliceIsReleased) {
  (void)Push(0, 3);
  FakeStream& stream = Start(0);
  bool free = false;
  pusher_->Close(absl::OkStatus(), [&free] { free = true; });
  EXPECT_TRUE(stream.cancelled());
  EXPECT_FALSE(free);
  stream.Release();
  EXPECT_TRUE(free);
}

TEST_F(StepPusherTest, GivesTheMemoryBackAtOnceWhenNothingWasSent) {
  bool free = false;
  pusher_->Close(absl::OkStatus(), [&free] { free = true; });
  EXPECT_TRUE(free);
}

TEST_F(StepPusherTest, SendsNothingAfterClose) {
  FakeStream& stream = Start(0);
  pusher_->Close(absl::OkStatus(), [] {});
  (void)Push(0, 3);
  stream.Resume();
  EXPECT_THAT(stream.sent(), IsEmpty());
}

TEST_F(StepPusherTest, TakesContributionsAndCreditFromDifferentThreads) {
  constexpr int kContributions = 200;
  FakeStream& stream = Start(0);
  std::thread shard([&stream] {
    for (int i = 0; i < kContributions; ++i) stream.source().OnCredit(16);
  });
  std::thread other([this] {
    for (int i = 0; i < kContributions; i += 2) (void)Push(0, i);
  });
  for (int i = 1; i < kContributions; i += 2) (void)Push(0, i);
  other.join();
  shard.join();
  EXPECT_EQ(stream.sent().size(), static_cast<size_t>(kContributions));
}

}  // namespace
}  // namespace kaon::client
