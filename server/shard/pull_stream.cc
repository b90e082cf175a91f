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
  if (status.ok() && *readable) status = WriteChunkLocked();
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

absl::Status PullStream::WriteChunkLocked() {
  const uint32_t id = request_.parameter_ids(next_parameter_);
  const auto dtype = static_cast<kernels::DType>(request_.dtype());
  const uint64_t num_elements = publisher_.num_elements(id);
  v1::TensorChunk chunk;
  chunk.set_parameter_id(id);
  chunk.set_offset(next_element_);
  chunk.set_num_elements(std::min<uint64_t>(num_elements - next_element_,
                                            proto::kMaxChunkBytes / kernels::SizeOf(dtype)));
  chunk.set_dtype(request_.dtype());
  grpc::Slice payload(chunk.num_elements() * kernels::SizeOf(dtype));
  // A fresh slice is ours alone until it is sent.
  auto* bytes = reinterpret_cast<std::byte*>(const_cast<uint8_t*>(payload.begin()));
  KAON_RETURN_IF_ERROR(
      publisher_.Read(id, request_.step(), next_element_, dtype, chunk.num_elements(), bytes));
  // A version of the same number may be another timeline's by now.
  KAON_RETURN_IF_ERROR(publisher_.CheckTimeline(request_.timeline()));
  chunk.set_crc32c(proto::Crc32c(bytes, payload.size()));
  const grpc::Slice slices[] = {grpc::Slice(proto::EncodeChunkHeader(chunk, payload.size())),
                                std::move(payload)};
  sent_ = grpc::ByteBuffer(slices, 2);
  next_element_ += chunk.num_elements();
  if (next_element_ == num_elements) {
    ++next_parameter_;
    next_element_ = 0;
  }
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
