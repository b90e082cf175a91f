// Runs the two ends of a push together without a network. A GradientAccumulator has room for
// everything that the client's PushQueue sends, even while all of a worker's window waits for an
// earlier rank.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "client/transport/push_queue.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "tests/server/shard/gradients/accumulator_fixture.h"

namespace kaon::shard {
namespace {

// Elements of w: three windows of one worker.
constexpr uint64_t kElements = 3 * proto::kMaxChunkBytes / sizeof(float);

// One worker: its queue, and the streams it opens one after the other.
class Worker {
 public:
  Worker(GradientAccumulator& accumulator, v1::PushOpen open, float value)
      : accumulator_(accumulator), open_(std::move(open)), w_(kElements, value), b_(4, value) {
    queue_.Add({kW, 0}, {w_.data(), w_.size(), DType::kFloat32});
    queue_.Add({kB, 0}, {b_.data(), b_.size(), DType::kFloat32});
  }

  // In place of the stream before, whose messages may have been lost.
  uint64_t Open() {
    queue_.Close();
    PushCallbacks callbacks;
    callbacks.on_credit = [this](uint64_t bytes) { queue_.AddCredit(bytes); };
    callbacks.on_ended = [](const absl::Status&) {};
    const absl::StatusOr<OpenPush> opened = accumulator_.Open(open_, std::move(callbacks));
    EXPECT_TRUE(opened.ok()) << opened.status();
    stream_ = opened->stream;
    std::vector<client::ReceivedElements> received;
    for (const v1::ReceivedChunks& chunks : opened->opened.received()) {
      received.push_back({{chunks.parameter_id(), chunks.micro_batch()}, chunks.num_elements()});
    }
    EXPECT_TRUE(queue_.Open(opened->opened.credit_bytes(), received).ok());
    return opened->opened.credit_bytes();
  }

  // False if the queue has nothing that it may send.
  bool SendOne() {
    const std::vector<client::ChunkToSend> next = queue_.Next(proto::kMaxChunkBytes);
    if (next.empty()) return false;
    std::vector<v1::TensorChunk> headers(next.size());
    std::vector<proto::ChunkView> views;
    for (size_t i = 0; i < next.size(); ++i) {
      headers[i].set_parameter_id(next[i].key.first);
      headers[i].set_micro_batch(next[i].key.second);
      headers[i].set_offset(next[i].offset);
      headers[i].set_num_elements(next[i].num_elements);
      headers[i].set_dtype(v1::DTYPE_FLOAT32);
      headers[i].set_crc32c(proto::Crc32c(next[i].payload.data(), next[i].payload.size()));
      views.push_back({&headers[i], absl::MakeConstSpan(&next[i].payload, 1)});
    }
    const absl::Status status = accumulator_.AddChunks(stream_, views);
    EXPECT_TRUE(status.ok()) << status;
    return status.ok();
  }
  int SendAll() {
    int sent = 0;
    while (SendOne()) ++sent;
    return sent;
  }
  absl::Status Finish() { return accumulator_.Finish(stream_, v1::PushFinish()); }

  client::PushQueue& queue() { return queue_; }

 private:
  GradientAccumulator& accumulator_;
  const v1::PushOpen open_;
  const std::vector<float> w_;
  const std::vector<float> b_;
  client::PushQueue queue_{proto::kMaxChunkBytes};
  PushStreamId stream_ = 0;
};

class FullStagingTest : public AccumulatorFixture {
 protected:
  FullStagingTest() {
    v1::RegisterBody registration = registration_;
    v1::ParameterSpec* w = registration.mutable_definition()->mutable_parameters(kW);
    w->clear_shape();
    w->add_shape(kElements);
    GradientAccumulator::Options options;
    options.store = &large_memory_.store();
    options.backend = &large_memory_.backend();
    options.staging_bytes = 2 * proto::kMaxChunkBytes;
    options.on_folded = [this](uint64_t generation) { folded_.push_back(generation); };
    options.on_parameter_folded = [](uint64_t, uint32_t) {};
    options.min_chunk_bytes = 4096;
    accumulator_ = std::make_unique<GradientAccumulator>(options);
    EXPECT_TRUE(accumulator_->Reserve(registration, 0).ok());
    accumulator_->ExpectStep({"gpt2", 1, 1});
    Begin();
  }
  ~FullStagingTest() override { accumulator_.reset(); }

  // Both workers send until neither may send more; then both must have finished.
  void Complete(Worker& first, Worker& later) {
    while (first.SendOne()) later.SendAll();
    EXPECT_TRUE(first.queue().all_sent());
    EXPECT_TRUE(later.queue().all_sent());
    for (Worker* worker : {&first, &later}) {
      EXPECT_EQ(worker->queue().in_flight_bytes(), 0u);
      EXPECT_EQ(worker->queue().TakeAccepted().size(), 2u);
      EXPECT_TRUE(worker->Finish().ok());
    }
    ASSERT_EQ(folded_, std::vector<uint64_t>{1});
    ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
    EXPECT_EQ(large_memory_.Floats(accumulator_->Gradient(kW)->values),
              std::vector<float>(kElements, 2));
    EXPECT_EQ(large_memory_.Floats(accumulator_->Gradient(kB)->values), std::vector<float>(4, 2));
  }

  ShardMemory large_memory_{16 << 20};
};

TEST_F(FullStagingTest, ALaterRankGoesOnAsTheEarlierOneIsFolded) {
  Worker later(*accumulator_, OpenRequest(1), 3);
  EXPECT_EQ(later.Open(), accumulator_->staging_window_bytes());
  // Halves of the window; then the credit is spent.
  EXPECT_EQ(later.SendAll(), 2);
  EXPECT_EQ(later.queue().in_flight_bytes(), accumulator_->staging_window_bytes());
  Worker first(*accumulator_, OpenRequest(0), 1);
  first.Open();
  Complete(first, later);
}

TEST_F(FullStagingTest, AStreamThatOpensWithoutCreditGoesOnToo) {
  Worker later(*accumulator_, OpenRequest(1), 3);
  later.Open();
  later.SendAll();
  EXPECT_EQ(later.Open(), 0u);
  EXPECT_EQ(later.SendAll(), 0);
  Worker first(*accumulator_, OpenRequest(0), 1);
  first.Open();
  Complete(first, later);
}

TEST_F(FullStagingTest, AStreamThatOpensInTheMiddleOfItGoesOnToo) {
  Worker later(*accumulator_, OpenRequest(1), 3);
  later.Open();
  later.SendAll();
  Worker first(*accumulator_, OpenRequest(0), 1);
  first.Open();
  ASSERT_TRUE(first.SendOne());
  EXPECT_EQ(later.Open(), accumulator_->staging_window_bytes() / 2);
  EXPECT_EQ(first.Open(), accumulator_->staging_window_bytes());
  Complete(first, later);
}

}  // namespace
}  // namespace kaon::shard
