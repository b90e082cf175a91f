#include "client/transport/laned_push.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "tests/conformance/queued_source.h"

namespace kaon::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A lane whose shard is the test.
class FakeLane : public ShardChannel {
 public:
  class Stream : public PushStream {
   public:
    void Resume() override { ++resumed; }
    void Cancel() override { cancelled = true; }
    int resumed = 0;
    bool cancelled = false;
  };

  std::shared_ptr<PushStream> Push(const v1::PushOpen& open,
                                   std::shared_ptr<PushSource> source) override {
    opens.push_back(open);
    source_ = std::move(source);
    stream = std::make_shared<Stream>();
    return stream;
  }
  std::shared_ptr<PullStream> Pull(PullOptions) override { return nullptr; }

  void Opened(uint64_t push = 0) {
    v1::PushOpened opened;
    opened.set_push(push);
    EXPECT_TRUE(source_->OnOpened(opened).ok());
  }
  void Credit(uint64_t bytes) { source_->OnCredit(bytes); }
  void Done(const absl::Status& status) { std::exchange(source_, nullptr)->OnDone(status); }
  // Ends the stream, as every stream ends at last; until then it keeps the push alive.
  void End() {
    if (source_ != nullptr) Done(absl::CancelledError("the test is over"));
  }
  // Returns the parameters of the next message: {1000} for a finish, empty for no message.
  std::vector<uint32_t> Next() {
    PushMessage message = source_->Next();
    if (std::holds_alternative<v1::PushFinish>(message)) {
      finish = std::get<v1::PushFinish>(message);
      return {kFinish};
    }
    std::vector<uint32_t> ids;
    if (const auto* chunks = std::get_if<LeasedChunks>(&message)) {
      for (const ChunkToSend& chunk : chunks->chunks) ids.push_back(chunk.key.first);
    }
    return ids;
  }

  static constexpr uint32_t kFinish = 1000;
  std::vector<v1::PushOpen> opens;
  std::shared_ptr<Stream> stream;
  v1::PushFinish finish;

 private:
  std::shared_ptr<PushSource> source_;
};

constexpr uint32_t kFinish = FakeLane::kFinish;

class LanedPushTest : public testing::Test {
 protected:
  LanedPushTest() {
    v1::PushOpen open;
    open.set_job("job");
    open.set_rank(3);
    push_ = std::make_shared<LanedPush>(std::vector<std::shared_ptr<ShardChannel>>{first_, second_},
                                        /*least_lane_bytes=*/100, open, source_);
    push_->Start();
  }

  void TearDown() override {
    first_->End();
    second_->End();
  }

  // A message with 60 bytes of each of these parameters.
  void Queue(const std::vector<uint32_t>& parameters) {
    LeasedChunks message;
    for (const uint32_t id : parameters) {
      message.chunks.push_back({{id, 0}, 0, 15, DType::kFloat32, absl::MakeConstSpan(memory_)});
    }
    message.lease = lease_;
    source_->Queue(message);
  }
  void QueueFinish() {
    v1::PushFinish finish;
    finish.set_loss(2.5);
    source_->Queue(finish);
  }
  // Both lanes are open, and parameter 0 was begun on the first.
  void OpenBoth() {
    first_->Opened(7);
    Queue({0});
    Queue({0});
    EXPECT_THAT(first_->Next(), ElementsAre(0));
    EXPECT_THAT(second_->opens, IsEmpty());
    EXPECT_THAT(first_->Next(), ElementsAre(0));
    ASSERT_THAT(second_->opens, SizeIs(1));
    second_->Opened();
  }

  const std::vector<std::byte> memory_ = std::vector<std::byte>(60);
  std::shared_ptr<const void> lease_ = std::make_shared<int>();
  std::shared_ptr<FakeLane> first_ = std::make_shared<FakeLane>();
  std::shared_ptr<FakeLane> second_ = std::make_shared<FakeLane>();
  std::shared_ptr<QueuedSource> source_ = std::make_shared<QueuedSource>();
  std::shared_ptr<LanedPush> push_;
};

TEST_F(LanedPushTest, ShortPushesTakeTheFirstLaneAlone) {
  first_->Opened(7);
  Queue({0});
  QueueFinish();
  EXPECT_THAT(first_->Next(), ElementsAre(0));
  EXPECT_THAT(first_->Next(), ElementsAre(kFinish));
  EXPECT_EQ(first_->finish.loss(), 2.5);
  first_->Done(absl::OkStatus());
  EXPECT_TRUE(source_->AwaitDone().ok());
  EXPECT_THAT(second_->opens, IsEmpty());
}

TEST_F(LanedPushTest, OtherLanesJoinThePushAndTakeOtherParameters) {
  OpenBoth();
  EXPECT_EQ(second_->opens[0].lane_of(), 7u);
  EXPECT_EQ(second_->opens[0].job(), "job");
  EXPECT_EQ(second_->opens[0].rank(), 3u);
  EXPECT_EQ(first_->opens[0].lane_of(), 0u);
  Queue({1});
  Queue({2, 3});
  Queue({1});
  EXPECT_THAT(second_->Next(), ElementsAre(1));
  EXPECT_THAT(first_->Next(), ElementsAre(2, 3));
  EXPECT_THAT(second_->Next(), ElementsAre(1));
  EXPECT_THAT(second_->Next(), IsEmpty());
  first_->Credit(60);
  EXPECT_EQ(source_->AwaitCredit(), 60u);
}

// A shard accepts the chunks of a parameter in their order only.
TEST_F(LanedPushTest, AParameterStaysOnTheLaneThatHasBegunIt) {
  OpenBoth();
  const int resumed = first_->stream->resumed;
  Queue({0});
  Queue({0, 1});
  EXPECT_THAT(second_->Next(), ElementsAre(1));
  EXPECT_GT(first_->stream->resumed, resumed);
  EXPECT_THAT(first_->Next(), ElementsAre(0));
  EXPECT_THAT(first_->Next(), ElementsAre(0));
  EXPECT_THAT(first_->Next(), IsEmpty());
}

TEST_F(LanedPushTest, IsFinishedOnceTheOtherLanesAre) {
  OpenBoth();
  Queue({1});
  QueueFinish();
  EXPECT_THAT(second_->Next(), ElementsAre(1));
  EXPECT_THAT(first_->Next(), IsEmpty());
  EXPECT_THAT(second_->Next(), ElementsAre(kFinish));
  EXPECT_FALSE(second_->finish.has_loss());
  EXPECT_THAT(second_->Next(), IsEmpty());
  EXPECT_THAT(first_->Next(), IsEmpty());
  const int resumed = first_->stream->resumed;
  second_->Done(absl::OkStatus());
  EXPECT_EQ(first_->stream->resumed, resumed + 1);
  EXPECT_THAT(first_->Next(), ElementsAre(kFinish));
  EXPECT_EQ(first_->finish.loss(), 2.5);
  EXPECT_THAT(first_->Next(), IsEmpty());
  first_->Done(absl::OkStatus());
  EXPECT_TRUE(source_->AwaitDone().ok());
}

TEST_F(LanedPushTest, TheLastMessageWakesTheOtherLanes) {
  OpenBoth();
  const int resumed = second_->stream->resumed;
  QueueFinish();
  EXPECT_THAT(first_->Next(), IsEmpty());
  EXPECT_EQ(second_->stream->resumed, resumed + 1);
  EXPECT_THAT(second_->Next(), ElementsAre(kFinish));
}

TEST_F(LanedPushTest, AShardThatTakesNoLanesGetsOneStream) {
  first_->Opened(0);
  for (int i = 0; i < 5; ++i) {
    Queue({0});
    EXPECT_THAT(first_->Next(), ElementsAre(0));
  }
  EXPECT_THAT(second_->opens, IsEmpty());
}

TEST_F(LanedPushTest, GoesOnWithoutALaneThatCannotBeOpened) {
  first_->Opened(7);
  Queue({0});
  Queue({0});
  first_->Next();
  first_->Next();
  Queue({1});
  QueueFinish();
  // The second lane sends nothing before it is open.
  EXPECT_THAT(second_->Next(), IsEmpty());
  second_->Done(absl::UnavailableError("no such connection"));
  EXPECT_FALSE(first_->stream->cancelled);
  EXPECT_THAT(first_->Next(), ElementsAre(1));
  EXPECT_THAT(first_->Next(), ElementsAre(kFinish));
}

// The lane's connection may need seconds to fail.
TEST_F(LanedPushTest, IsFinishedWhileALaneIsStillNotOpen) {
  first_->Opened(7);
  Queue({0});
  Queue({0});
  first_->Next();
  first_->Next();
  ASSERT_THAT(second_->opens, SizeIs(1));
  QueueFinish();
  EXPECT_THAT(first_->Next(), ElementsAre(kFinish));
  // Too late to matter, as is that the shard has ended it with the push.
  second_->Opened();
  EXPECT_THAT(second_->Next(), ElementsAre(kFinish));
  second_->Done(absl::AbortedError("the push of this lane is over"));
  EXPECT_FALSE(first_->stream->cancelled);
  first_->Done(absl::OkStatus());
  EXPECT_TRUE(source_->AwaitDone().ok());
}

TEST_F(LanedPushTest, IsCancelledEvenIfALaneEndsFirst) {
  OpenBoth();
  push_->Cancel();
  second_->Done(absl::AbortedError("the push of this lane is over"));
  first_->Done(absl::CancelledError("cancelled"));
  EXPECT_EQ(source_->AwaitDone(), absl::CancelledError("cancelled"));
}

TEST_F(LanedPushTest, AnErrorOfAnOpenLaneEndsThePushAndIsTold) {
  OpenBoth();
  second_->Done(absl::DataLossError("checksum"));
  EXPECT_TRUE(first_->stream->cancelled);
  first_->Done(absl::CancelledError("cancelled"));
  EXPECT_EQ(source_->AwaitDone(), absl::DataLossError("checksum"));
}

TEST_F(LanedPushTest, WhatTheShardSaysOfThePushItselfIsToldFirst) {
  OpenBoth();
  second_->Done(absl::AbortedError("the push of this lane is over"));
  first_->Done(absl::FailedPreconditionError("step 1 pushed, expecting 2"));
  EXPECT_EQ(source_->AwaitDone(), absl::FailedPreconditionError("step 1 pushed, expecting 2"));
}

TEST_F(LanedPushTest, ItsEndCancelsTheLanesAndGivesTheMemoryBack) {
  OpenBoth();
  // Waits for the first lane.
  Queue({0});
  EXPECT_THAT(second_->Next(), IsEmpty());
  const std::weak_ptr<const void> lease = lease_;
  lease_.reset();
  EXPECT_FALSE(lease.expired());
  first_->Done(absl::UnavailableError("gone"));
  EXPECT_TRUE(second_->stream->cancelled);
  EXPECT_TRUE(lease.expired());
  EXPECT_THAT(second_->Next(), IsEmpty());
  second_->Done(absl::CancelledError("cancelled"));
  EXPECT_EQ(source_->AwaitDone(), absl::UnavailableError("gone"));
}

TEST_F(LanedPushTest, CancelsAndResumesAllLanes) {
  OpenBoth();
  const int first = first_->stream->resumed;
  const int second = second_->stream->resumed;
  push_->Resume();
  EXPECT_EQ(first_->stream->resumed, first + 1);
  EXPECT_EQ(second_->stream->resumed, second + 1);
  push_->Cancel();
  EXPECT_TRUE(first_->stream->cancelled);
  EXPECT_TRUE(second_->stream->cancelled);
}

}  // namespace
}  // namespace kaon::client
