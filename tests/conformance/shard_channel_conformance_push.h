// Part of the suite of ShardChannel: pushes. The tests of each channel instantiate it; one thread.
#ifndef KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_PUSH_H_
#define KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_PUSH_H_

#include <gtest/gtest.h>

#include <memory>

#include "tests/conformance/shard_channel_conformance_fixture.h"

namespace kaon::client {

TEST_P(ShardChannelConformance, PushesWhatTheSourceGivesAndConfirmsTheFinish) {
  const auto source = WholeStep();
  const auto stream = shard_->Push(Open(0), source);
  const absl::Status status = source->AwaitDone();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(source->AwaitOpened().credit_bytes(), uint64_t{32} << 20);
}

TEST_P(ShardChannelConformance, TheShardFoldsWhatWasPushed) {
  for (uint32_t rank : {1, 0}) {
    const auto source = WholeStep();
    const auto stream = shard_->Push(Open(rank), source);
    ASSERT_TRUE(source->AwaitDone().ok());
  }
  const v1::Prepared prepared = coordinator_->Receive().prepared();
  ASSERT_EQ(prepared.sums_size(), 2);
  EXPECT_EQ(prepared.sums(0).sum_squares(), 91);
  EXPECT_EQ(prepared.sums(1).sum_squares(), 30);
}

TEST_P(ShardChannelConformance, PushesSeveralChunksInOneMessage) {
  const auto source = std::make_shared<QueuedSource>();
  source->Queue(Leased({Chunk(0, {1, 2, 3, 4, 5, 6}), Chunk(1, {1, 2, 3, 4})}));
  source->Queue(v1::PushFinish());
  const auto stream = shard_->Push(Open(0), source);
  EXPECT_TRUE(source->AwaitDone().ok());
}

TEST_P(ShardChannelConformance, PassesCreditOn) {
  const auto source = std::make_shared<QueuedSource>();
  source->Queue(Leased({Chunk(0, {1, 2, 3, 4, 5, 6})}));
  const auto stream = shard_->Push(Open(0), source);
  EXPECT_EQ(source->AwaitCredit(), 24u);
  stream->Cancel();
  EXPECT_TRUE(absl::IsCancelled(source->AwaitDone()));
}

// Folding overlaps receiving: the shard has folded the received chunks before there is more to
// send.
TEST_P(ShardChannelConformance, AChunkIsFoldedBeforeTheNextIsSent) {
  const auto source = std::make_shared<QueuedSource>();
  source->Queue(Leased({Chunk(0, {1, 2, 3, 4, 5, 6})}));
  const auto stream = shard_->Push(Open(0), source);
  // A chunk that only waits returns no credit.
  EXPECT_EQ(source->AwaitCredit(), 24u);
  const v1::Phase fold = AwaitPhase("fold");
  source->Queue(Leased({Chunk(1, {1, 2, 3, 4})}));
  source->Queue(v1::PushFinish());
  stream->Resume();
  ASSERT_TRUE(source->AwaitDone().ok());
  EXPECT_EQ(AwaitPhase("fold").begin_microseconds(), fold.begin_microseconds());
  EXPECT_GT(AwaitPhase("receive").end_microseconds(), fold.end_microseconds());
}

TEST_P(ShardChannelConformance, AsksAgainWhenResumed) {
  const auto source = std::make_shared<QueuedSource>();
  const auto stream = shard_->Push(Open(0), source);
  source->AwaitOpened();
  for (const PushMessage& message :
       {PushMessage(Leased({Chunk(0, {1, 2, 3, 4, 5, 6})})),
        PushMessage(Leased({Chunk(1, {1, 2, 3, 4})})), PushMessage(v1::PushFinish())}) {
    source->Queue(message);
    stream->Resume();
  }
  EXPECT_TRUE(source->AwaitDone().ok());
}

TEST_P(ShardChannelConformance, GivesTheMemoryBack) {
  const std::weak_ptr<const void> lease = lease_;
  auto source = WholeStep();
  auto stream = shard_->Push(Open(0), source);
  lease_.reset();
  ASSERT_TRUE(source->AwaitDone().ok());
  stream.reset();
  source.reset();
  tracker_->AwaitNone();
  EXPECT_TRUE(lease.expired());
}

TEST_P(ShardChannelConformance, KnowsAPushThatWasFinishedBefore) {
  const auto first = WholeStep();
  const auto stream = shard_->Push(Open(0), first);
  ASSERT_TRUE(first->AwaitDone().ok());
  const auto second = std::make_shared<QueuedSource>();
  const auto again = shard_->Push(Open(0), second);
  EXPECT_TRUE(second->AwaitDone().ok());
  EXPECT_TRUE(second->AwaitOpened().finished());
}

TEST_P(ShardChannelConformance, ReportsWhatTheShardRefuses) {
  v1::PushOpen other = Open(0);
  other.set_job("bert");
  const auto refused = std::make_shared<QueuedSource>();
  const auto stream = shard_->Push(other, refused);
  EXPECT_EQ(refused->AwaitDone(),
            absl::NotFoundError("job 'bert' pushed, this shard holds 'gpt2'"));
  const auto spoilt = std::make_shared<QueuedSource>();
  ChunkToSend chunk = Chunk(1, {1, 2, 3, 4});
  chunk.offset = 1;
  spoilt->Queue(Leased({chunk}));
  const auto next = shard_->Push(Open(0), spoilt);
  EXPECT_EQ(spoilt->AwaitDone(),
            absl::InvalidArgumentError("parameter b: offset 1 + 4 elements pushed, it has 4"));
}

TEST_P(ShardChannelConformance, EndsWithTheErrorOfItsSource) {
  const auto source = WholeStep();
  source->SetOpenedStatus(absl::InternalError("a shard that cannot be"));
  const auto stream = shard_->Push(Open(0), source);
  EXPECT_EQ(source->AwaitDone(), absl::InternalError("a shard that cannot be"));
}

TEST_P(ShardChannelConformance, EndsWhenItIsCancelledAndPushesAgain) {
  const auto source = std::make_shared<QueuedSource>();
  const auto stream = shard_->Push(Open(0), source);
  stream->Cancel();
  EXPECT_TRUE(absl::IsCancelled(source->AwaitDone()));
  const auto again = WholeStep();
  const auto other = shard_->Push(Open(0), again);
  const absl::Status status = again->AwaitDone();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ShardChannelConformance, EndsWithAbortedWhenTheStepIsReopened) {
  const auto source = std::make_shared<QueuedSource>();
  const auto stream = shard_->Push(Open(0), source);
  source->AwaitOpened();
  v1::StepPlan reopened = shard::TrainPlan(1, 1, 2);
  reopened.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  coordinator_->Send(PlanOf(reopened));
  EXPECT_TRUE(absl::IsAborted(source->AwaitDone()));
}

TEST_P(ShardChannelConformance, EndsWhenTheShardDoes) {
  const auto source = std::make_shared<QueuedSource>();
  const auto stream = shard_->Push(Open(0), source);
  source->AwaitOpened();
  const auto pull = StartPull(1, {{0, 6}});
  server_->Shutdown();
  EXPECT_TRUE(absl::IsUnavailable(source->AwaitDone()));
  // gRPC itself answers CANCELLED to a call that arrives after the shutdown has begun.
  const absl::Status pulled = pull->Await().status;
  EXPECT_TRUE(absl::IsUnavailable(pulled) || absl::IsCancelled(pulled)) << pulled;
}

}  // namespace kaon::client

#endif  // KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_PUSH_H_
