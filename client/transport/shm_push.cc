#include "client/transport/shm_push.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/transport/chunk_message.h"
#include "proto/chunk_record.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"

namespace kaon::client {

namespace {

using proto::ShmRecord;

uint32_t KindOf(ShmRecord record) { return static_cast<uint32_t>(record); }

}  // namespace

ShmPush::ShmPush(std::shared_ptr<CallTracker> tracker, std::shared_ptr<TransferCounters> counters,
                 const v1::PushOpen& open, std::shared_ptr<PushSource> source)
    : ShmCall(std::move(tracker), std::move(counters)), open_(open), source_(std::move(source)) {}

void ShmPush::Resume() {
  std::shared_ptr<PushStream> stream;
  {
    MutexLock lock(mu_);
    stream = network_stream_;
  }
  if (stream != nullptr) return stream->Resume();
  Wake();
}

void ShmPush::Cancel() {
  std::shared_ptr<PushStream> stream;
  {
    MutexLock lock(mu_);
    cancelled_ = true;
    stream = network_stream_;
  }
  if (stream != nullptr) return stream->Cancel();
  CancelRun();
}

void ShmPush::UseNetwork(ShardChannel& network) {
  const std::shared_ptr<PushStream> stream = network.Push(open_, std::move(source_));
  bool cancelled = false;
  {
    MutexLock lock(mu_);
    network_stream_ = stream;
    cancelled = cancelled_;
  }
  if (cancelled) return stream->Cancel();
  // Chunks queued meanwhile could not resume the stream.
  stream->Resume();
}

void ShmPush::End() {
  // Release the source before this stream, because the source may own the stream.
  const std::shared_ptr<PushSource> source = std::move(source_);
  if (source != nullptr) source->OnDone(result());
}

absl::StatusOr<bool> ShmPush::Begin(proto::ShmLink& link, uint32_t number) {
  v1::PushRequest request;
  *request.mutable_open() = open_;
  return link.Write({0, KindOf(ShmRecord::kPushRequest), number, 0}, request.SerializeAsString());
}

void ShmPush::Take(const proto::RingReader::Record& record) {
  if (const std::optional<absl::Status> end = EndOf(record)) {
    return StopTold(end->ok()
                        ? absl::UnavailableError("the shard ended the push without confirming it")
                        : *end);
  }
  v1::PushResponse response;
  if (record.header.kind != KindOf(ShmRecord::kPushResponse) ||
      !response.ParseFromArray(record.body.data(), static_cast<int>(record.body.size()))) {
    return Stop(absl::InternalError("the shard answered a push with bytes that are no answer"));
  }
  TakeResponse(response);
}

void ShmPush::TakeResponse(const v1::PushResponse& response) {
  switch (response.body_case()) {
    case v1::PushResponse::kOpened: {
      PassFailpoint(Failpoint::worker_push_opened);
      const absl::Status status = source_->OnOpened(response.opened());
      // The shard has received everything on an earlier stream.
      if (!status.ok() || response.opened().finished()) Stop(status);
      opened_ = true;
      return;
    }
    case v1::PushResponse::kCreditBytes:
      return source_->OnCredit(response.credit_bytes());
    case v1::PushResponse::kFinished:
      return StopTold(absl::OkStatus());
    case v1::PushResponse::BODY_NOT_SET:
      return;
  }
}

absl::StatusOr<bool> ShmPush::Write(proto::ShmLink& link, uint32_t number) {
  if (!opened_) return false;
  // Reserve room before asking the source: chunks that it returns count as sent.
  KAON_ASSIGN_OR_RETURN(std::byte* const to, link.writer().Reserve(proto::kMaxRingBody));
  if (to == nullptr) return false;
  proto::RingHeader header = {0, KindOf(ShmRecord::kPushRequest), number, 0};
  PushMessage message = source_->Next();
  if (const auto* chunks = std::get_if<LeasedChunks>(&message)) {
    header.size = static_cast<uint32_t>(WriteChunks(*chunks, to));
    link.writer().Commit(header);
    PassFailpoint(Failpoint::worker_chunk_sent);
    return true;
  }
  if (const auto* finish = std::get_if<v1::PushFinish>(&message)) {
    v1::PushRequest request;
    *request.mutable_finish() = *finish;
    const std::string bytes = request.SerializeAsString();
    if (bytes.size() > proto::kMaxRingBody) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a finish of ", bytes.size(), " bytes, expecting at most ", proto::kMaxRingBody));
    }
    bytes.copy(reinterpret_cast<char*>(to), bytes.size());
    header.size = static_cast<uint32_t>(bytes.size());
    link.writer().Commit(header);
    PassFailpoint(Failpoint::worker_finish_push);
    return true;
  }
  return false;
}

size_t ShmPush::WriteChunks(const LeasedChunks& leased, std::byte* to) {
  std::vector<v1::TensorChunk> headers;
  size_t payload_bytes = 0;
  for (const ChunkToSend& chunk : leased.chunks) {
    headers.push_back(HeaderOf(chunk));
    payload_bytes += chunk.payload.size();
  }
  const absl::StatusOr<size_t> size =
      proto::WriteChunkRecord(absl::MakeSpan(headers), payload_bytes, to, [&](std::byte* payload) {
        for (size_t i = 0; i < headers.size(); ++i) {
          const absl::Span<const std::byte> from = leased.chunks[i].payload;
          headers[i].set_crc32c(proto::CopyWithCrc32c(from, payload));
          payload += from.size();
        }
        return absl::OkStatus();
      });
  counters().shm_bytes += payload_bytes;
  return *size;
}

}  // namespace kaon::client
