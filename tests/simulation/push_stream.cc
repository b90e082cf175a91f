#include "tests/simulation/push_stream.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "proto/crc32c.h"
#include "tests/simulation/model.h"

namespace kaon::simulation {

namespace {

// The size is small, so that every parameter takes several chunks.
constexpr uint64_t kChunkElements = 5;
// A process that should be dead reopens the stream this often, at these intervals.
constexpr int kReopenings = 20;
constexpr absl::Duration kReopenAfter = absl::Milliseconds(20);

}  // namespace

std::shared_ptr<PushStream> PushStream::Start(World& world, ShardNode& shard, PushContext context,
                                              OnEnded on_ended) {
  std::shared_ptr<PushStream> stream(
      new PushStream(world, shard, std::move(context), std::move(on_ended)));
  stream->Later([stream] { stream->Open(); });
  return stream;
}

PushStream::PushStream(World& world, ShardNode& shard, PushContext context, OnEnded on_ended)
    : world_(world), shard_(shard), context_(std::move(context)), on_ended_(std::move(on_ended)) {}

void PushStream::Later(std::function<void()> event) {
  world_.queue().After(world_.Latency(),
                       [self = shared_from_this(), event = std::move(event)] { event(); });
}

void PushStream::Break() {
  on_ended_ = nullptr;
  Later([this] { Close(); });
}

void PushStream::Outlive() {
  on_ended_ = nullptr;
  reopenings_ = kReopenings;
}

void PushStream::Close() {
  if (stream_ != 0 && !Lost()) shard_.core().accumulator().Close(stream_);
  stream_ = 0;
}

void PushStream::End(const absl::Status& status) {
  if (on_ended_ != nullptr) {
    world_.Trace(absl::StrCat("w", context_.rank, " push of step ", context_.step, " to s",
                              shard_.index(), " ends: ", status.ToString()));
  }
  Later([this, status] {
    if (on_ended_ == nullptr) return;
    std::exchange(on_ended_, nullptr)(status);
  });
  Close();
  chunks_.clear();
  if (reopenings_ == 0 || !world_.faulty()) return;
  --reopenings_;
  credit_bytes_ = 0;
  waiting_for_credit_ = false;
  world_.queue().After(world_.Between(absl::ZeroDuration(), kReopenAfter),
                       [self = shared_from_this()] {
                         if (self->stream_ == 0) self->Open();
                       });
}

void PushStream::Open() {
  if (!shard_.alive()) return End(absl::UnavailableError("connection refused"));
  shard_life_ = shard_.life();
  v1::PushOpen open;
  open.set_job(context_.job->name());
  open.set_timeline(context_.timeline);
  open.set_step(context_.step);
  open.set_rank(context_.rank);
  *open.mutable_attempt() = context_.attempt;
  *open.mutable_ballot() = context_.ballot;
  open.set_round(context_.round);
  shard::PushCallbacks callbacks;
  callbacks.on_credit = [self = weak_from_this()](uint64_t bytes) {
    const auto stream = self.lock();
    if (stream == nullptr) return;
    stream->credit_bytes_ += static_cast<int64_t>(bytes);
    if (!std::exchange(stream->waiting_for_credit_, false)) return;
    stream->Later([stream = stream.get()] { stream->SendNext(); });
  };
  callbacks.on_ended = [self = weak_from_this()](const absl::Status& status) {
    const auto stream = self.lock();
    if (stream != nullptr && !status.ok()) stream->End(status);
  };
  auto opened = shard_.core().accumulator().Open(open, std::move(callbacks));
  if (reopenings_ > 0) ++world_.result().outlived_pushes;
  if (reopenings_ > 0 && absl::IsAborted(opened.status())) ++world_.result().outlived_refused;
  if (!opened.ok()) return End(opened.status());
  stream_ = opened->stream;
  world_.invariants().taken_chunks().OnOpened(shard_.index(), context_.rank, opened->opened);
  shard_.OnDeath([self = weak_from_this()] {
    const auto stream = self.lock();
    if (stream != nullptr && stream->stream_ != 0) stream->End(absl::UnavailableError("lost"));
  });
  credit_bytes_ += static_cast<int64_t>(opened->opened.credit_bytes());
  Plan(opened->opened);
  Later([this] { SendNext(); });
}

void PushStream::Plan(const v1::PushOpened& opened) {
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> received;
  // A worker that does not look sends everything again: repetitions must not count.
  if (!world_.Chance(0.3)) {
    for (const v1::ReceivedChunks& chunk : opened.received()) {
      received[{chunk.parameter_id(), chunk.micro_batch()}] = chunk.num_elements();
    }
  }
  const v1::Placement& placement = shard_.machine()->registration()->placement();
  for (const v1::ParameterPlacement& home : placement.parameters()) {
    const v1::ParameterSpec& parameter = context_.job->parameters(home.parameter_id());
    if (home.shard() != shard_.machine()->shard() || (parameter.frozen() && context_.step > 0)) {
      continue;
    }
    const uint64_t size = job::NumElements(parameter);
    for (uint32_t micro = 0; micro < context_.share.micro_batches; ++micro) {
      for (uint64_t offset = received[{home.parameter_id(), micro}]; offset < size;
           offset += kChunkElements) {
        chunks_.push_back(
            {home.parameter_id(), micro, offset, std::min(kChunkElements, size - offset)});
      }
    }
  }
}

void PushStream::SendNext() {
  if (world_.Lost()) return End(absl::UnavailableError("stream broke"));
  if (chunks_.empty()) return Later([this] { DeliverFinish(); });
  const Chunk chunk = chunks_.front();
  const int64_t bytes = static_cast<int64_t>(chunk.num_elements * sizeof(float));
  if (credit_bytes_ < bytes) {
    waiting_for_credit_ = true;
    return;
  }
  credit_bytes_ -= bytes;
  chunks_.pop_front();
  Later([this, chunk] { Deliver(chunk); });
}

std::vector<float> PushStream::Values(uint32_t parameter_id) const {
  return context_.step == 0 ? InitialWeights(*context_.job, parameter_id)
                            : Gradient(*context_.job, parameter_id, context_.rank,
                                       context_.gradient_nonce, context_.step);
}

void PushStream::Deliver(const Chunk& chunk) {
  if (stream_ == 0) return;
  if (Lost()) return End(absl::UnavailableError("connection reset"));
  const std::vector<float> values = Values(chunk.parameter_id);
  const absl::Span<const std::byte> payload(
      reinterpret_cast<const std::byte*>(values.data() + chunk.offset),
      chunk.num_elements * sizeof(float));
  v1::TensorChunk header;
  header.set_parameter_id(chunk.parameter_id);
  header.set_micro_batch(chunk.micro_batch);
  header.set_offset(chunk.offset);
  header.set_num_elements(chunk.num_elements);
  header.set_dtype(v1::DTYPE_FLOAT32);
  header.set_crc32c(proto::Crc32c(payload.data(), payload.size()));
  const absl::Status status =
      shard_.core().accumulator().AddChunks(stream_, {{&header, absl::MakeConstSpan(&payload, 1)}});
  if (!status.ok()) return End(status);
  world_.invariants().taken_chunks().OnTaken(shard_.index(), context_.rank, context_.attempt,
                                             header);
  SendNext();
}

void PushStream::DeliverFinish() {
  if (stream_ == 0) return;
  if (Lost()) return End(absl::UnavailableError("connection reset"));
  v1::PushFinish finish;
  finish.set_loss(1.0 / (1 + context_.rank));
  End(shard_.core().accumulator().Finish(stream_, finish));
}

}  // namespace kaon::simulation
