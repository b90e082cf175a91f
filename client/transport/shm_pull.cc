#include "client/transport/shm_pull.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/transport/event_loop.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "proto/tensor_stream.h"

namespace kaon::client {

namespace {

using proto::ShmRecord;

uint32_t KindOf(ShmRecord record) { return static_cast<uint32_t>(record); }

}  // namespace

ShmPull::ShmPull(std::shared_ptr<CallTracker> tracker, std::shared_ptr<TransferCounters> counters,
                 PullOptions options)
    : ShmCall(std::move(tracker), std::move(counters)),
      options_(std::move(options)),
      deadline_(EventLoop::Now() + options_.timeout),
      assembler_(options_.request, options_.targets, options_.on_infinite) {}

void ShmPull::Cancel() {
  std::shared_ptr<PullStream> stream;
  {
    MutexLock lock(mu_);
    cancelled_ = true;
    stream = network_stream_;
  }
  if (stream != nullptr) return stream->Cancel();
  CancelRun();
}

void ShmPull::UseNetwork(ShardChannel& network) {
  PullOptions options = std::move(options_);
  options_.done = nullptr;
  options.timeout = Patience();
  const std::shared_ptr<PullStream> stream = network.Pull(std::move(options));
  MutexLock lock(mu_);
  network_stream_ = stream;
  if (cancelled_) stream->Cancel();
}

void ShmPull::End() {
  if (options_.done) options_.done(result());
}

absl::Duration ShmPull::Patience() const { return deadline_ - EventLoop::Now(); }

absl::StatusOr<bool> ShmPull::Begin(proto::ShmLink& link, uint32_t number) {
  return link.Write({0, KindOf(ShmRecord::kPullRequest), number, 0},
                    options_.request.SerializeAsString());
}

void ShmPull::Take(const proto::RingReader::Record& record) {
  if (const std::optional<absl::Status> end = EndOf(record)) {
    return StopTold(end->ok() ? assembler_.CheckComplete() : *end);
  }
  if (record.header.kind != KindOf(ShmRecord::kPullResponse)) {
    return Stop(absl::InternalError("the shard answered a pull with bytes that are no answer"));
  }
  if (const absl::Status status = TakeChunks(record.body); !status.ok()) Stop(status);
}

absl::Status ShmPull::TakeChunks(absl::Span<const std::byte> message) {
  PassFailpoint(Failpoint::worker_pull_chunk);
  const absl::StatusOr<proto::DecodedPush> decoded = proto::DecodePush({&message, 1});
  absl::Status status = decoded.status();
  absl::StatusOr<proto::ChunkViews> views;
  if (status.ok()) {
    views = proto::SplitPayload(*decoded);
    status = views.status();
  }
  if (!status.ok()) return absl::InternalError(absl::StrCat("pull: ", status.message()));
  if (options_.on_bytes) options_.on_bytes(decoded->payload_bytes());
  counters().shm_bytes += decoded->payload_bytes();
  return assembler_.Accept(views->chunks);
}

}  // namespace kaon::client
