#include "server/shard/gradients/gradient_accumulator.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/kernels/forwarding_backend.h"
#include "tests/server/shard/gradients/accumulator_fixture.h"

namespace kaon::shard {
namespace {

using GradientAccumulatorTest = AccumulatorFixture;

// A sum, with something to be done in the middle of a fold.
class InterruptedAccumulation final : public kernels::Accumulation {
 public:
  InterruptedAccumulation(std::unique_ptr<kernels::Accumulation> sum,
                          std::function<void()> interrupt)
      : sum_(std::move(sum)), interrupt_(std::move(interrupt)) {}

  void Begin() override { sum_->Begin(); }
  void Fold(const kernels::GradientChunk& chunk) override {
    interrupt_();
    sum_->Fold(chunk);
  }
  void SetZero() override { sum_->SetZero(); }
  kernels::MeanFacts FinishMean(const kernels::MeanScalars& scalars) override {
    return sum_->FinishMean(scalars);
  }
  kernels::FoldFacts FactsOf(uint32_t contribution) const override {
    return sum_->FactsOf(contribution);
  }

 private:
  const std::unique_ptr<kernels::Accumulation> sum_;
  const std::function<void()> interrupt_;
};

class InterruptedBackend final : public kernels::ForwardingBackend {
 public:
  explicit InterruptedBackend(std::function<void()> interrupt)
      : ForwardingBackend(*kernels::CreateBackend(ShardMemory::Reference())),
        interrupt_(std::move(interrupt)) {}

  std::unique_ptr<kernels::Accumulation> Accumulate(kernels::Region sum) override {
    return std::make_unique<InterruptedAccumulation>(ForwardingBackend::Accumulate(sum),
                                                     interrupt_);
  }

 private:
  const std::function<void()> interrupt_;
};

// A repeated chunk is dropped, and the worker gets its credit ([T9]).
TEST_F(GradientAccumulatorTest, DropsAChunkThatIsRepeatedAndCreditsIt) {
  Begin();
  const PushingWorker worker = Open(0);
  ASSERT_TRUE(Push(worker, kB, 0, {1, 2}).ok());
  ASSERT_TRUE(Push(worker, kB, 0, {1, 2}).ok());
  EXPECT_EQ(*worker.credit, 16u);
  ASSERT_TRUE(Push(worker, kB, 2, {3, 4}).ok());
  ASSERT_TRUE(Push(worker, kB, 0, {1, 2}).ok());
  ASSERT_TRUE(Finish(worker, {kW}).ok());
  ASSERT_TRUE(Finish(Open(1), {kW, kB}).ok());
  ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
  EXPECT_EQ(Gradient(kB), (std::vector<float>{0.5, 1, 1.5, 2}));
}

TEST_F(GradientAccumulatorTest, RefusesOtherBytesForWhatItHas) {
  Begin();
  const PushingWorker worker = Open(0);
  ASSERT_TRUE(Push(worker, kB, 0, {1, 2}).ok());
  const absl::Status status = Push(worker, kB, 0, {1, 3});
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find("parameter b of rank 0"), absl::string_view::npos) << status;
  const std::vector<std::byte> payload = Encode({1, 2, 3, 4}, v1::DTYPE_BFLOAT16);
  v1::TensorChunk chunk = Header(kB, 0, payload, v1::DTYPE_BFLOAT16);
  chunk.set_num_elements(2);
  const std::vector<std::byte> half(payload.begin(), payload.begin() + 4);
  chunk.set_crc32c(proto::Crc32c(half.data(), half.size()));
  EXPECT_EQ(AddOne(*accumulator_, worker.stream, chunk, {absl::MakeConstSpan(half)}).code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(GradientAccumulatorTest, RefusesGapsAndOverlapsNamingBothOffsets) {
  Begin();
  const PushingWorker worker = Open(0);
  ASSERT_TRUE(Push(worker, kW, 0, {1, 2}).ok());
  ExpectInvalid(Push(worker, kW, 3, {1}), "gap: elements from 3 pushed, expecting from 2");
  ExpectInvalid(Push(worker, kW, 1, {2, 3}), "overlap: elements 1 .. 3 pushed, elements 0 .. 2");
  ExpectInvalid(Push(worker, kW, 0, {1}), "overlap: elements 0 .. 1 pushed, elements 0 .. 2");
}

TEST_F(GradientAccumulatorTest, RefusesABadChecksumBeforeAddingAnything) {
  Begin();
  const PushingWorker worker = Open(0);
  std::vector<std::byte> payload = Encode({1, 2, 3, 4});
  const v1::TensorChunk chunk = Header(kB, 0, payload);
  payload[5] ^= std::byte{1};
  const absl::Status status =
      AddOne(*accumulator_, worker.stream, chunk, {absl::MakeConstSpan(payload)});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Open(0).opened.received_size(), 0);
}

TEST_F(GradientAccumulatorTest, NamesWhatIsMalformedInAChunk) {
  Begin();
  const PushingWorker worker = Open(0);
  const std::vector<std::byte> payload = Encode({1, 2});
  const auto push = [&](auto&& spoil) {
    v1::TensorChunk chunk = Header(kB, 0, payload);
    spoil(&chunk);
    return AddOne(*accumulator_, worker.stream, chunk, {absl::MakeConstSpan(payload)});
  };
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_parameter_id(3); }),
                "parameter_id is 3, expecting 0 .. 2");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_parameter_id(kFrozen); }),
                "parameter f is frozen");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_dtype(v1::DTYPE_UNSPECIFIED); }),
                "dtype 0 pushed");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_num_elements(0); }), "num_elements is 0");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_num_elements(1 << 19); }),
                "num_elements is 524288");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_num_elements(3); }),
                "payload has 8 bytes, expecting 12");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_offset(3); }),
                "offset 3 + 2 elements pushed, it has 4");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_offset(~uint64_t{0}); }),
                "elements pushed, it has 4");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_micro_batch(1); }), "micro-batch 1 of rank 0");
}

TEST_F(GradientAccumulatorTest, NamesTheShardOfAParameterThatIsElsewhere) {
  v1::RegisterBody registration = registration_;
  registration.mutable_placement()->mutable_parameters(1)->set_shard(1);
  ASSERT_TRUE(Reserve(registration).ok());
  Begin();
  ExpectInvalid(Push(Open(0), kB, 0, {1}), "parameter b is on shard 1");
}

TEST_F(GradientAccumulatorTest, StagesWhatComesEarlyAndCreditsItWhenItIsFolded) {
  Begin();
  const PushingWorker late = Open(1);
  ASSERT_TRUE(Push(late, kB, 0, {1, 1}).ok());
  ASSERT_TRUE(Push(late, kB, 2, {1, 1}).ok());
  EXPECT_EQ(*late.credit, 0u);
  const PushingWorker first = Open(0);
  ASSERT_TRUE(Push(first, kB, 0, {2, 2, 2}).ok());
  EXPECT_EQ(*first.credit, 12u);
  EXPECT_EQ(*late.credit, 8u);
  ASSERT_TRUE(Push(first, kB, 3, {2}).ok());
  EXPECT_EQ(*late.credit, 16u);
}

TEST_F(GradientAccumulatorTest, RefusesMoreThanTheCreditGranted) {
  v1::RegisterBody registration = registration_;
  const uint64_t chunk_elements = proto::kMaxChunkBytes / 4;
  registration.mutable_definition()->mutable_parameters(0)->clear_shape();
  registration.mutable_definition()->mutable_parameters(0)->add_shape(chunk_elements * 2);
  ShardMemory memory(64 << 20);
  GradientAccumulator::Options options{&memory.store(), &memory.backend(),
                                       2 * proto::kMaxChunkBytes, [](uint64_t) {},
                                       [](uint64_t, uint32_t) {}};
  GradientAccumulator accumulator(options);
  ASSERT_TRUE(accumulator.Reserve(registration, 0).ok());
  accumulator.ExpectStep({"gpt2", 1, 1});
  accumulator.BeginFolding(plan_, 1);
  const absl::StatusOr<OpenPush> push =
      accumulator.Open(OpenRequest(1), {[](uint64_t) {}, [](const absl::Status&) {}});
  ASSERT_TRUE(push.ok());
  EXPECT_EQ(push->opened.credit_bytes(), proto::kMaxChunkBytes);
  const std::vector<std::byte> payload = Encode(std::vector<float>(chunk_elements, 1));
  ASSERT_TRUE(
      AddOne(accumulator, push->stream, Header(kW, 0, payload), {absl::MakeConstSpan(payload)})
          .ok());
  const std::vector<std::byte> more = Encode({1});
  const absl::Status status = AddOne(accumulator, push->stream, Header(kW, chunk_elements, more),
                                     {absl::MakeConstSpan(more)});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  // A new stream learns which chunks still wait.
  const absl::StatusOr<OpenPush> again =
      accumulator.Open(OpenRequest(1), {[](uint64_t) {}, [](const absl::Status&) {}});
  EXPECT_EQ(again->opened.credit_bytes(), 0u);
  EXPECT_EQ(again->opened.received(0).num_elements(), chunk_elements);
}

// A worker whose stream broke opens another one while the shard still adds the last chunk of the
// first. The worker gets credit for that chunk once: with the new stream or when it is folded.
TEST_F(GradientAccumulatorTest, GrantsNoCreditForAChunkThatIsBeingAdded) {
  absl::Notification folding;
  absl::Notification replaced;
  InterruptedBackend backend([&] {
    folding.Notify();
    // The other thread holds the accumulator's lock then, and has not looked at the credit yet.
    EXPECT_TRUE(replaced.WaitForNotificationWithTimeout(absl::Seconds(30)));
  });
  tier::HostTier host(1 << 20);
  tier::TieredStore store(host);
  GradientAccumulator::Options options;
  options.store = &store;
  options.backend = &backend;
  options.staging_bytes = 2 * proto::kMaxChunkBytes;
  options.on_folded = [](uint64_t) {};
  options.on_parameter_folded = [](uint64_t, uint32_t) {};
  accumulator_ = nullptr;
  accumulator_ = std::make_unique<GradientAccumulator>(options);
  ASSERT_TRUE(accumulator_->Reserve(registration_, 0).ok());
  accumulator_->ExpectStep({"gpt2", 1, 1});
  Begin();

  std::thread::id opening;
  PushCallbacks callbacks;
  callbacks.on_credit = [](uint64_t) {};
  // Destroyed with the stream it belongs to.
  struct NotifyWhenReplaced {
    ~NotifyWhenReplaced() {
      if (std::this_thread::get_id() == *opening && !replaced->HasBeenNotified())
        replaced->Notify();
    }
    std::thread::id* opening;
    absl::Notification* replaced;
    void operator()(const absl::Status&) const {}
  };
  callbacks.on_ended = NotifyWhenReplaced{&opening, &replaced};
  const absl::StatusOr<OpenPush> old = accumulator_->Open(OpenRequest(0), std::move(callbacks));
  ASSERT_TRUE(old.ok()) << old.status();

  PushingWorker worker;
  std::thread opener([&] {
    folding.WaitForNotification();
    opening = std::this_thread::get_id();
    worker = Open(0);
  });
  const std::vector<std::byte> payload = Encode({1, 2, 3, 4});
  EXPECT_TRUE(
      AddOne(*accumulator_, old->stream, Header(kB, 0, payload), {absl::MakeConstSpan(payload)})
          .ok());
  opener.join();
  EXPECT_EQ(worker.opened.credit_bytes(), accumulator_->staging_window_bytes() - 16);
  EXPECT_EQ(*worker.credit, 16u);
  accumulator_ = nullptr;
}

TEST_F(GradientAccumulatorTest, KeepsNothingOfARefusedChunkInTheWindow) {
  Begin();
  const PushingWorker worker = Open(1);
  ASSERT_TRUE(Push(worker, kB, 0, {1, 2}).ok());
  ExpectInvalid(Push(worker, kB, 3, {4}), "gap");
  // The worker would mistake credit for acceptance.
  EXPECT_EQ(*worker.credit, 0u);
  EXPECT_EQ(Open(1).opened.credit_bytes(), accumulator_->staging_window_bytes() - 8);
}

TEST_F(GradientAccumulatorTest, RefusesAFinishThatLeavesSomethingOut) {
  Begin();
  const PushingWorker worker = Open(0);
  ASSERT_TRUE(Push(worker, kW, 0, {1, 2, 3, 4}).ok());
  ASSERT_TRUE(Push(worker, kB, 0, {1, 2, 3, 4}).ok());
  ExpectInvalid(Finish(worker),
                "parameter w of rank 0 micro-batch 0: finished with 4 elements, expecting 6");
  ExpectInvalid(Finish(worker, {kW}), "finished with 4 elements, expecting 0");
  ExpectInvalid(Finish(worker, {77}), "parameter_id is 77");
  ASSERT_TRUE(Push(worker, kW, 4, {5, 6}).ok());
  EXPECT_TRUE(Finish(worker).ok());
  EXPECT_TRUE(Finish(worker).ok());
}

TEST_F(GradientAccumulatorTest, RefusesAnOpenThatDoesNotFit) {
  const auto code = [&](auto&& spoil) {
    v1::PushOpen open = OpenRequest(0);
    spoil(&open);
    return TryOpen(open).status().code();
  };
  EXPECT_EQ(code([](v1::PushOpen*) {}), absl::StatusCode::kUnavailable);
  Begin();
  EXPECT_EQ(code([](v1::PushOpen* o) { o->set_job("bert"); }), absl::StatusCode::kNotFound);
  EXPECT_EQ(code([](v1::PushOpen* o) { o->set_timeline(0); }),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code([](v1::PushOpen* o) { o->set_timeline(2); }), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code([](v1::PushOpen* o) { o->set_step(0); }), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code([](v1::PushOpen* o) { o->set_step(2); }), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code([](v1::PushOpen* o) { o->set_rank(2); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](v1::PushOpen* o) { o->mutable_attempt()->set_number(9); }),
            absl::StatusCode::kAborted);
  EXPECT_EQ(code([](v1::PushOpen*) {}), absl::StatusCode::kOk);
}

// [T9]: a late push of a decided step.
TEST_F(GradientAccumulatorTest, RefusesGradientFromPastStepNamingBoth) {
  accumulator_->ExpectStep({"gpt2", 1, 42});
  EXPECT_EQ(TryOpen(OpenRequest(0, 41)).status().message(), "step 41 pushed, expecting 42");
}

TEST_F(GradientAccumulatorTest, EndsTheOlderStreamOfARank) {
  Begin();
  const PushingWorker old = Open(0);
  const PushingWorker worker = Open(0);
  ASSERT_EQ(old.ended->size(), 1u);
  EXPECT_EQ(old.ended->at(0).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Push(old, kB, 0, {1}).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Push(worker, kB, 0, {1}).ok());
}

TEST_F(GradientAccumulatorTest, KeepsAPrefixOfUnchangedRanksWhenAStepIsReopened) {
  Begin();
  const PushingWorker first = Open(0);
  PushAll(first, 1);
  const PushingWorker replaced = Open(1);
  v1::StepPlan reopened = plan_;
  reopened.set_round(2);
  reopened.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  accumulator_->BeginFolding(reopened, 2);
  EXPECT_EQ(first.ended->at(0).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(replaced.ended->at(0).code(), absl::StatusCode::kAborted);
  const PushingWorker again = Open(0);
  EXPECT_TRUE(again.opened.finished());
  EXPECT_EQ(again.opened.received_size(), 2);
  v1::PushOpen open = OpenRequest(1);
  open.mutable_attempt()->set_number(9);
  const absl::StatusOr<PushingWorker> newcomer = TryOpen(open);
  ASSERT_TRUE(newcomer.ok()) << newcomer.status();
  EXPECT_EQ(newcomer->opened.received_size(), 0);
  PushAll(*newcomer, 3);
  EXPECT_EQ(folded_, std::vector<uint64_t>{2});
  EXPECT_FALSE(accumulator_->FinishSums(1).has_value());
  ASSERT_TRUE(accumulator_->FinishSums(2).has_value());
  EXPECT_EQ(Gradient(kB), std::vector<float>(4, 2));
}

TEST_F(GradientAccumulatorTest, ClearsItsSumsWhenAReplacedRankIsFoldedIn) {
  Begin();
  PushAll(Open(0), 1);
  ASSERT_TRUE(Push(Open(1), kB, 0, {7}).ok());
  v1::StepPlan reopened = plan_;
  reopened.set_round(2);
  reopened.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  accumulator_->BeginFolding(reopened, 2);
  const PushingWorker first = Open(0);
  EXPECT_FALSE(first.opened.finished());
  EXPECT_EQ(first.opened.received_size(), 0);
  PushAll(first, 1);
  v1::PushOpen open = OpenRequest(1);
  open.mutable_attempt()->set_number(9);
  PushAll(*TryOpen(open), 3);
  ASSERT_TRUE(accumulator_->FinishSums(2).has_value());
  EXPECT_EQ(Gradient(kB), std::vector<float>(4, 2));
}

// T21: never a part of a contribution, whether it was folded in already or waits for its turn.
TEST_F(GradientAccumulatorTest, AWorkerThatIsLostLeavesNothingBehind) {
  for (const bool folded : {false, true}) {
    Restart(2 * proto::kMaxChunkBytes);
    plan_ = TrainPlan(1, 1, 1);
    Begin();
    const PushingWorker lost = Open(1);
    ASSERT_TRUE(Push(lost, kW, 0, {9, 9, 9}).ok());
    if (folded) PushAll(Open(0), 1);
    plan_.set_round(2);
    plan_.mutable_step()->mutable_members()->RemoveLast();
    accumulator_->BeginFolding(plan_, 2);
    EXPECT_TRUE(folded_.empty());
    ASSERT_EQ(lost.ended->size(), 1u);
    EXPECT_EQ(lost.ended->front().code(), absl::StatusCode::kAborted);
    const absl::Status back = TryOpen(OpenRequest(1)).status();
    EXPECT_EQ(back.code(), absl::StatusCode::kAborted);
    EXPECT_EQ(back.message(), "rank 1 pushed, which takes no part in step 1");
    PushAll(Open(0), 1);
    EXPECT_EQ(folded_, std::vector<uint64_t>{2});
    EXPECT_EQ(Gradient(kW), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  }
}

TEST_F(GradientAccumulatorTest, ForgetsStagedChunksOfAReplacedRank) {
  Begin();
  ASSERT_TRUE(Push(Open(1), kB, 0, {7, 7, 7, 7}).ok());
  v1::StepPlan reopened = plan_;
  reopened.set_round(2);
  reopened.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  accumulator_->BeginFolding(reopened, 2);
  v1::PushOpen open = OpenRequest(1);
  open.mutable_attempt()->set_number(9);
  const absl::StatusOr<PushingWorker> newcomer = TryOpen(open);
  EXPECT_EQ(newcomer->opened.credit_bytes(), accumulator_->staging_window_bytes());
  PushAll(Open(0), 1);
  PushAll(*newcomer, 3);
  ASSERT_TRUE(accumulator_->FinishSums(2).has_value());
  EXPECT_EQ(Gradient(kB), std::vector<float>(4, 2));
}

// [P2], edges 16 and 27: a shard without a parameter votes like the others.
TEST_F(GradientAccumulatorTest, WaitsForNobodyWhenItHasNothingToSum) {
  v1::RegisterBody registration = registration_;
  for (v1::ParameterPlacement& placement :
       *registration.mutable_placement()->mutable_parameters()) {
    placement.set_shard(1);
  }
  ASSERT_TRUE(Reserve(registration).ok());
  Begin();
  EXPECT_EQ(folded_, std::vector<uint64_t>{1});
  EXPECT_TRUE(Finish(Open(0)).ok());
}

TEST_F(GradientAccumulatorTest, EndsAndRefusesEverythingOnceClosed) {
  Begin();
  const PushingWorker worker = Open(0);
  accumulator_->CloseAll(absl::DataLossError("lost"));
  EXPECT_EQ(worker.ended->at(0).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(TryOpen(OpenRequest(0)).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kaon::shard
