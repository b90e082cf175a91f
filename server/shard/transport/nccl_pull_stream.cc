#include "server/shard/transport/nccl_pull_stream.h"

#include <cstddef>
#include <vector>

#include "kaon/v1/shard_nccl.pb.h"
#include "kernels/nccl/channel_bug.h"
#include "proto/failpoint.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"
#include "server/auth/peer_identity.h"
#include "server/shard/transport/raw_message.h"

namespace kaon::shard {

NcclPullStream* NcclPullStream::Start(const Shard& shard, grpc::CallbackServerContext& context,
                                      const grpc::ByteBuffer& request) {
  std::shared_ptr<NcclPullStream> stream(new NcclPullStream(shard, auth::PeerIdentity(context)));
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

absl::Status NcclPullStream::Open(const PullAdmission::Source& source,
                                  const grpc::ByteBuffer& request) {
  if (shard_.nccl == nullptr) return absl::FailedPreconditionError("this shard has no NCCL");
  KAON_ASSIGN_OR_RETURN(auto parsed, ParseRequest<v1::NcclPullRequest>(request));
  const v1::PullRequest& pull = parsed.pull();
  KAON_RETURN_IF_ERROR(auth::AuthorizeWorker(peer_, pull.job(), parsed.rank()));
  MutexLock lock(mu_);
  worker_ = {pull.job(), parsed.rank()};
  session_ = parsed.session();
  KAON_RETURN_IF_ERROR(shard_.nccl->CheckPulls(session_, worker_));
  // The slots of the session bound its messages, so nothing waits for room to send them.
  KAON_ASSIGN_OR_RETURN(
      admitted_,
      shard_.admission.Open(
          source, PullAdmission::RequestBytes(request.Length(), pull.parameter_ids_size()),
          nullptr));
  return reader_.Open(pull);
}

void NcclPullStream::Continue() {
  MutexLock lock(mu_);
  if (ended_) return;
  if (const absl::Status status = ContinueLocked(); !status.ok()) EndLocked(status);
}

absl::Status NcclPullStream::ContinueLocked() {
  if (writing_ || waits_) return absl::OkStatus();
  if (reader_.done()) {
    if (under_way_ == 0) EndLocked(absl::OkStatus());
    return absl::OkStatus();
  }
  if (under_way_ >= shard_.nccl->slots()) return absl::OkStatus();
  KAON_ASSIGN_OR_RETURN(const bool readable,
                        reader_.Await([self = shared_from_this()] { self->OnReadable(); }));
  waits_ = !readable;
  return readable ? SendLocked() : absl::OkStatus();
}

absl::Status NcclPullStream::SendLocked() {
  std::vector<v1::TensorChunk> chunks = reader_.Next();
  const uint64_t bytes = reader_.BytesOf(chunks);
  v1::NcclPullResponse announced;
  KAON_ASSIGN_OR_RETURN(
      *announced.mutable_transfer(),
      shard_.nccl->Send(
          worker_, session_, chunks.front().parameter_id(), bytes,
          [&](kernels::Region to) {
            mu_.AssertHeld();
            return reader_.Read(chunks, to);
          },
          [self = shared_from_this()](const absl::Status& status) { self->OnSent(status); }));
  has_sent_ = true;
  ++under_way_;
  for (v1::TensorChunk& chunk : chunks) {
    // The digest is the checksum.
    chunk.clear_crc32c();
    *announced.add_chunks() = std::move(chunk);
  }
  shard_.counts.AddBytes(monitor::Transfer::kPulled, bytes);
  PassFailpoint(Failpoint::shard_pull_chunk);
  writing_ = true;
  announced_ = Serialize(announced);
  StartWrite(&announced_);
  return absl::OkStatus();
}

void NcclPullStream::OnReadable() {
  {
    MutexLock lock(mu_);
    waits_ = false;
  }
  Continue();
}

void NcclPullStream::OnSent(const absl::Status& status) {
  {
    MutexLock lock(mu_);
    --under_way_;
    if (!status.ok()) return EndLocked(status);
  }
  Continue();
}

void NcclPullStream::OnWriteDone(bool ok) {
  {
    MutexLock lock(mu_);
    writing_ = false;
    if (!ok) return EndLocked(absl::CancelledError("the worker is gone"));
  }
  Continue();
}

void NcclPullStream::OnCancel() {
  MutexLock lock(mu_);
  EndLocked(absl::CancelledError("the worker is gone"));
}

void NcclPullStream::EndLocked(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  if (waits_) reader_.Forget();
  if (admitted_.has_value()) shard_.admission.Close(*admitted_);
  reader_.NoteEnd(status);
  if (!status.ok() && has_sent_ && !Has(kernels::ChannelBug::kSessionKeptAfterPull)) {
    shard_.nccl->Fail(session_, "a pull ended early");
  }
  Finish(proto::ToGrpc(status));
}

void NcclPullStream::OnDone() {
  // This may be the last owner.
  const std::shared_ptr<NcclPullStream> self = std::move(self_);
}

}  // namespace kaon::shard
