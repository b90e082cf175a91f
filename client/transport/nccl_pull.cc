#include "client/transport/nccl_pull.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "client/transport/event_loop.h"
#include "kernels/nccl/channel_bug.h"
#include "proto/failpoint.h"
#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"
#include "proto/tensor_stream.h"

namespace kaon::client {

using kernels::ChannelBug;

NcclPull::NcclPull(Options options, PullOptions pull)
    : token_(options.tracker),
      options_(std::move(options)),
      pull_(std::move(pull)),
      deadline_(EventLoop::Now() + pull_.timeout),
      assembler_(pull_.request, pull_.targets) {}

void NcclPull::Start() {
  const bool has_lane = options_.lane != nullptr && !options_.lane->taken.exchange(true);
  {
    MutexLock lock(mu_);
    self_ = shared_from_this();
    ended_ = !has_lane;
  }
  has_lane ? Ask() : UseNetwork();
}

void NcclPull::Ask() {
  {
    MutexLock lock(mu_);
    if (begun_ || ended_) return;
  }
  absl::Status why;
  switch (options_.lane->lane.TakeTurn(shared_from_this(), &why)) {
    case NcclLane::Turn::kLater:
      return;
    case NcclLane::Turn::kNow:
      return Begin();
    case NcclLane::Turn::kNever:
      return End(why);
  }
}

void NcclPull::Begin() {
  const absl::StatusOr<NcclLane::Joined> joined = options_.lane->lane.Join(this);
  if (!joined.ok()) return End(joined.status());
  MutexLock lock(mu_);
  // The lane may have called OnTurn meanwhile.
  if (ended_ || std::exchange(begun_, true)) return;
  slots_ = joined->slots;
  *request_.mutable_pull() = pull_.request;
  request_.set_rank(options_.rank);
  request_.set_session(joined->session);
  if (deadline_ != absl::InfiniteFuture()) {
    context_.set_deadline(proto::DeadlineAfter(deadline_ - EventLoop::Now()));
  }
  v1::ShardNccl::NewStub(options_.connection)->async()->Pull(&context_, &request_, this);
  StartRead(&in_);
  StartCall();
}

void NcclPull::Cancel() {
  std::shared_ptr<PullStream> network;
  bool waits = false;
  {
    MutexLock lock(mu_);
    cancelled_ = true;
    network = network_stream_;
    waits = !begun_ && !ended_;
    if (begun_) FailLocked(absl::CancelledError("the pull was cancelled"));
  }
  if (network != nullptr) return network->Cancel();
  waits ? End(absl::CancelledError("the pull was cancelled")) : EndIfOver();
}

void NcclPull::FailLocked(const absl::Status& why) {
  failure_.Update(why);
  if (!call_done_) context_.TryCancel();
}

void NcclPull::OnSessionEnded(const absl::Status& why) {
  {
    MutexLock lock(mu_);
    FailLocked(why);
  }
  EndIfOver();
}

void NcclPull::OnReadDone(bool ok) {
  if (!ok) return;
  {
    MutexLock lock(mu_);
    announced_.push_back(in_);
    PostLocked();
  }
  StartRead(&in_);
}

void NcclPull::PostLocked() {
  while (failure_.ok() && !announced_.empty() && posted_ < slots_) {
    uint64_t bytes = 0;
    for (const v1::TensorChunk& chunk : announced_.front().chunks()) {
      // The sum must not wrap, even for a wrong number.
      bytes += std::min<uint64_t>(chunk.num_elements(), proto::kMaxChunkBytes + 1) *
               proto::WireSizeOf(pull_.request.dtype());
    }
    // Weak: a session may keep it until an abort returns.
    const absl::Status posted =
        options_.lane->lane.Receive(this, announced_.front().transfer(), bytes,
                                    [weak = weak_from_this(), announced = announced_.front()](
                                        kernels::ConstRegion payload) -> std::function<void()> {
                                      const auto self = weak.lock();
                                      if (self == nullptr) return nullptr;
                                      self->OnArrived(announced, payload);
                                      return [self] { self->OnSlotFree(); };
                                    });
    if (!posted.ok()) return FailLocked(posted);
    announced_.pop_front();
    ++posted_;
  }
}

void NcclPull::OnArrived(const v1::NcclPullResponse& announced, kernels::ConstRegion payload) {
  {
    MutexLock lock(mu_);
    if (ended_ || !failure_.ok()) return;
    writing_ = true;
  }
  const absl::Status written = Write(announced, payload);
  MutexLock lock(mu_);
  writing_ = false;
  if (!written.ok()) FailLocked(written);
}

void NcclPull::OnSlotFree() {
  {
    MutexLock lock(mu_);
    if (ended_) return;
    --posted_;
    PostLocked();
  }
  EndIfOver();
}

absl::Status NcclPull::Write(const v1::NcclPullResponse& announced, kernels::ConstRegion payload) {
  PassFailpoint(Failpoint::worker_pull_chunk);
  const uint64_t digest = options_.link->Digest(announced.chunks(0).parameter_id(), payload);
  if (digest != announced.transfer().digest() && !Has(ChannelBug::kPulledDigestIgnored)) {
    // UNAVAILABLE, since the shard still has the weights.
    return absl::UnavailableError(
        absl::StrCat("NCCL session ", announced.transfer().session(), ": transfer ",
                     announced.transfer().sequence(), " arrived with digest ",
                     absl::Hex(digest, absl::kZeroPad16), ", announced with ",
                     absl::Hex(announced.transfer().digest(), absl::kZeroPad16)));
  }
  uint64_t at = 0;
  for (const v1::TensorChunk& chunk : announced.chunks()) {
    const uint64_t bytes = chunk.num_elements() * proto::WireSizeOf(pull_.request.dtype());
    KAON_ASSIGN_OR_RETURN(const PullAssembler::Place place, assembler_.Take(chunk, bytes));
    options_.link->Copy(payload.Sub(at, bytes), {kernels::Space::kDevice, place.to, bytes});
    at += bytes;
  }
  options_.counters->nccl_bytes += at;
  if (pull_.on_bytes) pull_.on_bytes(at);
  return absl::OkStatus();
}

void NcclPull::OnDone(const grpc::Status& status) {
  {
    MutexLock lock(mu_);
    call_done_ = true;
    call_status_ = proto::FromGrpc(status);
  }
  EndIfOver();
}

void NcclPull::EndIfOver() {
  absl::Status result;
  {
    MutexLock lock(mu_);
    if (ended_ || !call_done_ || writing_) return;
    result = failure_.ok() ? call_status_ : failure_;
    const bool awaits = posted_ > 0 || !announced_.empty();
    if (result.ok() && awaits && !Has(ChannelBug::kPullDoesNotWait)) return;
  }
  if (result.ok()) result = assembler_.CheckComplete();
  End(result);
}

void NcclPull::End(const absl::Status& result) {
  bool cancelled = false;
  {
    MutexLock lock(mu_);
    if (ended_) return;
    // It began meanwhile, and ends with its call.
    if (begun_ && !call_done_) return FailLocked(result);
    ended_ = true;
    cancelled = cancelled_;
  }
  options_.lane->lane.Release(this, result);
  options_.lane->taken = false;
  if (!result.ok() && !cancelled) return UseNetwork();
  Finish(result);
}

void NcclPull::Finish(const absl::Status& result) {
  pull_.done(result);
  std::shared_ptr<NcclPull> self;
  // It holds this pull, too.
  std::shared_ptr<PullStream> stream;
  MutexLock lock(mu_);
  over_ = true;
  self = std::move(self_);
  stream = std::move(network_stream_);
}

void NcclPull::UseNetwork() {
  // The network may be done before it returns.
  const std::shared_ptr<NcclPull> held_here = shared_from_this();
  const auto copies = std::make_shared<std::vector<std::vector<std::byte>>>();
  PullOptions options = pull_;
  for (MutableTensorView& target : options.targets) {
    copies->emplace_back(target.num_bytes());
    target.elements = copies->back().data();
    target.device = -1;
  }
  options.timeout = deadline_ - EventLoop::Now();
  options.done = [self = shared_from_this(), copies](const absl::Status& status) {
    for (size_t i = 0; status.ok() && i < copies->size(); ++i) {
      auto* const to = static_cast<std::byte*>(self->pull_.targets[i].elements);
      self->options_.link->CopyIn((*copies)[i], {kernels::Space::kDevice, to, (*copies)[i].size()});
    }
    self->Finish(status);
  };
  const std::shared_ptr<PullStream> stream = options_.network->Pull(std::move(options));
  bool cancelled = false;
  {
    MutexLock lock(mu_);
    if (over_) return;
    network_stream_ = stream;
    cancelled = cancelled_;
  }
  if (cancelled) stream->Cancel();
}

}  // namespace kaon::client
