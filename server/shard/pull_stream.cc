#include "server/shard/pull_stream.h"

#include <glog/logging.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "proto/crc32c.h"
#include "proto/failpoint.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"
#include "proto/tensor_stream.h"
#include "server/auth/peer_identity.h"

namespace kaon::shard {

namespace {

absl::StatusOr<v1::PullRequest> Parse(const grpc::ByteBuffer& buffer) {
  if (buffer.Length() > proto::kMaxChunkBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "request of ", buffer.Length(), " bytes, expecting at most ", proto::kMaxChunkBytes));
  }
  std::vector<grpc::Slice> slices;
  if (const grpc::Status dumped = buffer.Dump(&slices); !dumped.ok())
    return proto::FromGrpc(dumped);
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::PullRequest request;
  if (request.ParseFromString(bytes)) return request;
  return absl::InvalidArgumentError(
      absl::StrCat("message of ", bytes.size(), " bytes is not a kaon.v1.PullRequest"));
}

}  // namespace

PullStream* PullStream::Start(ParameterPublisher& publisher, monitor::EventCounts& counts,
                              proto::Identity peer, const grpc::ByteBuffer& request) {
  std::shared_ptr<PullStream> stream(new PullStream(publisher, counts, std::move(peer)));
  stream->self_ = stream;
  if (const absl::Status status = stream->Check(request); !status.ok()) {
    MutexLock lock(stream->mu_);
    stream->EndLocked(status);
  } else {
    stream->Continue();
  }
  return stream.get();
}

absl::Status PullStream::Check(const grpc::ByteBuffer& request) {
  KAON_ASSIGN_OR_RETURN(request_, Parse(request));
  if (peer_.job.has_value() && *peer_.job != request_.job()) {
    return absl::PermissionDeniedError(
        absl::StrCat("certificate of job '", *peer_.job, "', job '", request_.job(), "' pulled"));
  }
  return publisher_.CheckPull(request_);
}

void PullStream::Continue() {
  MutexLock lock(mu_);
  if (ended_) return;
  if (next_parameter_ == request_.parameter_ids_size()) return EndLocked(absl::OkStatus());
  absl::StatusOr<bool> readable = MakeReadableLocked();
  absl::Status status = readable.status();
  if (status.ok() && *readable) status = WriteChunksLocked();
  if (!status.ok()) EndLocked(status);
}

absl::StatusOr<bool> PullStream::MakeReadableLocked() {
  // Within a parameter every read checks that the version is still there.
  if (next_element_ > 0) return true;
  KAON_RETURN_IF_ERROR(publisher_.CheckTimeline(request_.timeline()));
  KAON_ASSIGN_OR_RETURN(waiter_,
                        publisher_.Await(request_.parameter_ids(next_parameter_), request_.step(),
                                         [self = shared_from_this()] { self->Continue(); }));
  return waiter_ == 0;
}

std::vector<v1::TensorChunk> PullStream::NextChunksLocked() {
  const uint64_t element_bytes = proto::WireSizeOf(request_.dtype());
  std::vector<v1::TensorChunk> chunks;
  uint64_t bytes = 0;
  while (next_parameter_ < request_.parameter_ids_size() && chunks.size() < proto::kMaxPieces) {
    const uint32_t id = request_.parameter_ids(next_parameter_);
    const uint64_t left = publisher_.num_elements(id) - next_element_;
    const uint64_t most = (proto::kMaxChunkBytes - bytes) / element_bytes;
    // Behind others, only what is not cut and need not be waited for.
    if (!chunks.empty() && (left > most || !publisher_.IsReadable(id, request_.step()))) break;
    v1::TensorChunk& chunk = chunks.emplace_back();
    chunk.set_parameter_id(id);
    chunk.set_offset(next_element_);
    chunk.set_num_elements(std::min(left, most));
    chunk.set_dtype(request_.dtype());
    bytes += chunk.num_elements() * element_bytes;
    next_element_ += chunk.num_elements();
    if (left > most) break;
    ++next_parameter_;
    next_element_ = 0;
  }
  return chunks;
}

absl::Status PullStream::WriteChunksLocked() {
  std::vector<v1::TensorChunk> chunks = NextChunksLocked();
  const auto dtype = static_cast<kernels::DType>(request_.dtype());
  const uint64_t element_bytes = kernels::SizeOf(dtype);
  uint64_t bytes = 0;
  for (const v1::TensorChunk& chunk : chunks) bytes += chunk.num_elements() * element_bytes;
  grpc::Slice payload(bytes);
  // A fresh slice is ours alone until it is sent.
  auto* to = reinterpret_cast<std::byte*>(const_cast<uint8_t*>(payload.begin()));
  for (v1::TensorChunk& chunk : chunks) {
    const uint64_t chunk_bytes = chunk.num_elements() * element_bytes;
    KAON_RETURN_IF_ERROR(publisher_.Read(chunk.parameter_id(), request_.step(), chunk.offset(),
                                         dtype, chunk.num_elements(), to));
    chunk.set_crc32c(proto::Crc32c(to, chunk_bytes));
    to += chunk_bytes;
  }
  // A version of the same number may be another timeline's by now.
  KAON_RETURN_IF_ERROR(publisher_.CheckTimeline(request_.timeline()));
  const grpc::Slice slices[] = {grpc::Slice(proto::EncodeChunkHeader(chunks, payload.size())),
                                std::move(payload)};
  sent_ = grpc::ByteBuffer(slices, 2);
  PassFailpoint(Failpoint::shard_pull_chunk);
  StartWrite(&sent_);
  return absl::OkStatus();
}

void PullStream::OnWriteDone(bool ok) {
  if (ok) return Continue();
  MutexLock lock(mu_);
  EndLocked(absl::CancelledError("the reader is gone"));
}

void PullStream::OnCancel() {
  MutexLock lock(mu_);
  if (waiter_ != 0) publisher_.Forget(waiter_);
  EndLocked(absl::CancelledError("the reader is gone"));
}

void PullStream::EndLocked(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  if (!status.ok() && !absl::IsCancelled(status)) {
    counts_.Add(monitor::Event::kPullRefused, status.code());
    LOG_EVERY_T(WARNING, 1) << "pull of " << auth::PeerName(peer_) << " refused: " << status;
  }
  Finish(proto::ToGrpc(status));
}

void PullStream::OnDone() {
  // May be the last owner.
  const std::shared_ptr<PullStream> self = std::move(self_);
}

}  // namespace kaon::shard
