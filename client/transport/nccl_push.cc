#include "client/transport/nccl_push.h"

#include <utility>
#include <variant>
#include <vector>

namespace kaon::client {

void NcclPush::Start(ShardChannel& network, const v1::PushOpen& open) {
  const std::shared_ptr<PushStream> stream = network.Push(open, shared_from_this());
  bool cancelled = false;
  {
    MutexLock lock(mu_);
    if (done_) return;
    stream_ = stream;
    cancelled = cancelled_;
  }
  // An earlier Resume or Cancel did not reach the stream.
  cancelled ? stream->Cancel() : stream->Resume();
}

std::shared_ptr<PushStream> NcclPush::stream() const {
  MutexLock lock(mu_);
  return stream_;
}

void NcclPush::Resume() {
  if (const auto resumed = stream()) resumed->Resume();
}

void NcclPush::Cancel() {
  {
    MutexLock lock(mu_);
    cancelled_ = true;
  }
  if (const auto cancelled = stream()) cancelled->Cancel();
}

void NcclPush::Fail(const absl::Status& why) {
  {
    MutexLock lock(mu_);
    if (failure_.ok()) failure_ = why;
  }
  Cancel();
}

absl::Status NcclPush::OnOpened(const v1::PushOpened& opened) { return source_->OnOpened(opened); }

void NcclPush::OnCredit(uint64_t bytes) { source_->OnCredit(bytes); }

PushMessage NcclPush::Next() {
  if (messages_.empty()) {
    PushMessage message = source_->Next();
    auto* const chunks = std::get_if<LeasedChunks>(&message);
    if (chunks == nullptr) return message;
    Divide(std::move(*chunks));
  }
  if (messages_.front().chunks.front().device >= 0) return SendOnDevice();
  LeasedChunks message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

void NcclPush::Divide(LeasedChunks message) {
  for (ChunkToSend& chunk : message.chunks) {
    const bool on_device = chunk.device >= 0;
    // Chunks of one message keep their order.
    if (messages_.empty() || (messages_.back().chunks.front().device >= 0) != on_device) {
      messages_.push_back({{}, message.lease, std::nullopt});
    }
    messages_.back().chunks.push_back(std::move(chunk));
  }
}

bool NcclPush::IsFrontReady() const {
  for (const ChunkToSend& chunk : messages_.front().chunks) {
    if (chunk.ready_event != nullptr && !options_.link->IsReady(chunk.ready_event)) return false;
  }
  return true;
}

PushMessage NcclPush::SendOnDevice() {
  {
    // A push that is given up must not take the turn of the next one.
    MutexLock lock(mu_);
    if (cancelled_) return std::monostate();
  }
  // A wait on the device has a deadline, and a trainer may compute for longer.
  if (!IsFrontReady()) {
    options_.lane->CallSoon(shared_from_this());
    return std::monostate();
  }
  absl::Status why;
  switch (options_.lane->TakeTurn(shared_from_this(), &why)) {
    case NcclLane::Turn::kLater:
      return std::monostate();
    case NcclLane::Turn::kNow: {
      absl::StatusOr<v1::NcclTransfer> transfer =
          options_.lane->Send(this, messages_.front().chunks);
      // The lane says how it goes on.
      if (!transfer.ok()) return std::monostate();
      LeasedChunks message = std::move(messages_.front());
      messages_.pop_front();
      for (const ChunkToSend& chunk : message.chunks) {
        options_.counters->nccl_bytes += chunk.payload.size();
      }
      message.nccl = *std::move(transfer);
      return message;
    }
    case NcclLane::Turn::kNever:
      break;
  }
  if (options_.required) {
    Fail(why);
    return std::monostate();
  }
  LeasedChunks message = CopyOut(messages_.front());
  messages_.pop_front();
  return message;
}

LeasedChunks NcclPush::CopyOut(const LeasedChunks& message) const {
  size_t bytes = 0;
  for (const ChunkToSend& chunk : message.chunks) bytes += chunk.payload.size();
  const auto copy = std::make_shared<std::vector<std::byte>>(bytes);
  LeasedChunks copied = {message.chunks, copy, std::nullopt};
  size_t at = 0;
  for (ChunkToSend& chunk : copied.chunks) {
    const absl::Span<std::byte> to = absl::MakeSpan(*copy).subspan(at, chunk.payload.size());
    if (chunk.ready_event != nullptr) options_.link->WaitFor(chunk.ready_event);
    options_.link->CopyOut({kernels::Space::kDevice, chunk.payload.data(), chunk.payload.size()},
                           to);
    chunk.payload = to;
    chunk.device = -1;
    chunk.ready_event = nullptr;
    at += to.size();
  }
  return copied;
}

void NcclPush::OnDone(const absl::Status& status) {
  absl::Status result = status;
  std::shared_ptr<PushStream> ended;
  {
    MutexLock lock(mu_);
    done_ = true;
    ended = std::move(stream_);
    // The failure of the session caused the cancel.
    if (!failure_.ok() && absl::IsCancelled(status)) result = failure_;
  }
  options_.lane->Release(this, result);
  messages_.clear();
  // Release the source before this push, because the source may own the push.
  const std::shared_ptr<PushSource> source = std::move(source_);
  source->OnDone(result);
}

}  // namespace kaon::client
