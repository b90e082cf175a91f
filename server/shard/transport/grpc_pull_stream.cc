#include "server/shard/transport/grpc_pull_stream.h"

#include <grpcpp/support/slice.h>

#include <utility>
#include <vector>

#include "proto/failpoint.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"
#include "proto/tensor_stream.h"
#include "server/auth/peer_identity.h"
#include "server/shard/transport/raw_message.h"

namespace kaon::shard {

PullStream* PullStream::Start(const Shard& shard, grpc::CallbackServerContext& context,
                              const grpc::ByteBuffer& request) {
  const proto::Identity identity = auth::PeerIdentity(context);
  std::shared_ptr<PullStream> stream(new PullStream(shard, context, identity));
  stream->self_ = stream;
  const absl::Status status = stream->Open({auth::CallerName(context), context.peer()}, request);
  if (!status.ok()) {
    MutexLock lock(stream->mu_);
    stream->EndLocked(status);
  } else {
    stream->Continue();
  }
  return stream.get();
}

absl::Status PullStream::Open(const PullAdmission::Source& source,
                              const grpc::ByteBuffer& request) {
  KAON_ASSIGN_OR_RETURN(auto parsed, ParseRequest<v1::PullRequest>(request));
  MutexLock lock(mu_);
  const uint64_t bytes = PullAdmission::RequestBytes(request.Length(), parsed.parameter_ids_size());
  KAON_ASSIGN_OR_RETURN(
      admitted_, admission_.Open(source, bytes, [self = shared_from_this()] { self->Cut(); }));
  return reader_.Open(std::move(parsed));
}

void PullStream::Continue() {
  MutexLock lock(mu_);
  if (ended_) return;
  if (reader_.done()) return EndLocked(absl::OkStatus());
  absl::StatusOr<bool> readable = reader_.Await([self = shared_from_this()] { self->Continue(); });
  absl::Status status = readable.status();
  if (status.ok() && *readable) {
    has_turn_ = has_turn_ || admission_.BeginMessage(
                                 *admitted_, [self = shared_from_this()] { self->OnTurn(); });
    if (has_turn_) status = WriteChunksLocked();
  }
  if (!status.ok()) EndLocked(status);
}

void PullStream::OnTurn() {
  {
    MutexLock lock(mu_);
    has_turn_ = true;
  }
  Continue();
}

void PullStream::Cut() {
  MutexLock lock(mu_);
  if (ended_) return;
  reader_.NoteEnd(absl::ResourceExhaustedError(
      "its reader does not read, and others wait for their turn: the call is cancelled"));
  context_.TryCancel();
}

absl::Status PullStream::WriteChunksLocked() {
  std::vector<v1::TensorChunk> chunks = reader_.Next();
  grpc::Slice payload(reader_.BytesOf(chunks));
  // A new slice has no other owner until it is sent.
  auto* to = reinterpret_cast<std::byte*>(const_cast<uint8_t*>(payload.begin()));
  KAON_RETURN_IF_ERROR(reader_.Read(chunks, absl::MakeSpan(to, payload.size())));
  counts_.AddBytes(monitor::Transfer::kPulled, payload.size());
  const grpc::Slice slices[] = {grpc::Slice(proto::EncodeChunkHeader(chunks, payload.size())),
                                std::move(payload)};
  sent_ = grpc::ByteBuffer(slices, 2);
  PassFailpoint(Failpoint::shard_pull_chunk);
  StartWrite(&sent_);
  return absl::OkStatus();
}

void PullStream::OnWriteDone(bool ok) {
  {
    MutexLock lock(mu_);
    // The message is no longer held.
    sent_.Clear();
    has_turn_ = false;
    if (!ended_) admission_.EndMessage(*admitted_);
  }
  if (ok) return Continue();
  MutexLock lock(mu_);
  EndLocked(absl::CancelledError("the reader is gone"));
}

void PullStream::OnCancel() {
  MutexLock lock(mu_);
  reader_.Forget();
  EndLocked(absl::CancelledError("the reader is gone"));
}

void PullStream::EndLocked(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  if (admitted_.has_value()) admission_.Close(*admitted_);
  reader_.NoteEnd(status);
  Finish(proto::ToGrpc(status));
}

void PullStream::OnDone() {
  // This may be the last owner.
  const std::shared_ptr<PullStream> self = std::move(self_);
}

}  // namespace kaon::shard
