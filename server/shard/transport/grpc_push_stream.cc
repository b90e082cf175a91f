#include "server/shard/transport/grpc_push_stream.h"

#include <grpcpp/support/slice.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/nccl/channel_bug.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"

namespace kaon::shard {

namespace {

// Size of a chunk, its header, and the parameter ids of a finish.
constexpr size_t kMaxMessageBytes = proto::kMaxChunkBytes + (64 << 10);
constexpr char kUnfinished[] = "a push ended without its finish";

}  // namespace

PushStream::PushStream(GradientAccumulator& accumulator, monitor::EventCounts& counts,
                       NcclEndpoint* nccl, proto::Identity peer)
    : nccl_(nccl), intake_(accumulator, counts, std::move(peer)) {}

PushStream* PushStream::Start(GradientAccumulator& accumulator, monitor::EventCounts& counts,
                              NcclEndpoint* nccl, proto::Identity peer) {
  std::shared_ptr<PushStream> stream(new PushStream(accumulator, counts, nccl, std::move(peer)));
  stream->self_ = stream;
  stream->StartRead(&stream->received_);
  return stream.get();
}

void PushStream::OnReadDone(bool ok) {
  if (!ok) return End(absl::InvalidArgumentError("the push stream ended without a finish"));
  {
    MutexLock lock(mu_);
    reading_ = Reading::kTakes;
  }
  TakeReceived();
}

void PushStream::TakeReceived() {
  const absl::StatusOr<bool> taken = TakeMessage();
  // A finish that waits belongs to the thread of the last payload from now on.
  if (taken.ok() && !*taken) return;
  GoOn(taken.status());
}

absl::StatusOr<bool> PushStream::TakeMessage() {
  std::vector<grpc::Slice> buffers;
  if (received_.Length() > kMaxMessageBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "message of ", received_.Length(), " bytes pushed, expecting at most ", kMaxMessageBytes));
  }
  if (const grpc::Status dumped = received_.Dump(&buffers); !dumped.ok()) {
    return proto::FromGrpc(dumped);
  }
  std::vector<absl::Span<const std::byte>> slices;
  for (const grpc::Slice& buffer : buffers) {
    slices.push_back(
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(buffer.begin()), buffer.size()));
  }
  return Take(slices);
}

void PushStream::GoOn(const absl::Status& status) {
  if (!status.ok()) return End(status);
  // The next read overwrites the memory of the message.
  MutexLock lock(mu_);
  // Nothing after a finish is read: it would wait for a payload in a slot that nobody frees.
  if (ended_ || finished_) return;
  if (nccl_ != nullptr && awaited_ >= nccl_->slots() &&
      !Has(kernels::ChannelBug::kReadsBeyondTheSlots)) {
    reading_ = Reading::kPauses;
    return;
  }
  reading_ = Reading::kReads;
  StartRead(&received_);
}

absl::Status PushStream::Await(v1::PushRequest announced) {
  if (nccl_ == nullptr) {
    return absl::UnavailableError("this shard has no NCCL, expecting payloads");
  }
  NcclEndpoint::Announced transfer;
  transfer.transfer = announced.nccl();
  transfer.parameter_id =
      announced.has_chunk() ? announced.chunk().parameter_id() : announced.pieces(0).parameter_id();
  transfer.bytes = PushIntake::PayloadBytes(announced);
  {
    MutexLock lock(mu_);
    ++awaited_;
  }
  const absl::Status status = nccl_->Receive(
      {intake_.open().job(), intake_.open().rank()}, transfer,
      [self = shared_from_this(), announced = std::move(announced)](kernels::ConstRegion payload) {
        return self->intake_.AddReceived(announced, payload);
      },
      [self = shared_from_this()](const absl::Status& status) { self->OnPayload(status); });
  MutexLock lock(mu_);
  if (!status.ok()) {
    --awaited_;
    if (Has(kernels::ChannelBug::kStrangerEndsSession)) session_ = transfer.transfer.session();
    return status;
  }
  // Noted now: before, it might have been another worker's.
  session_ = transfer.transfer.session();
  if (ended_) nccl_->Fail(session_, kUnfinished);
  return absl::OkStatus();
}

void PushStream::OnPayload(const absl::Status& status) {
  bool finish = false;
  bool resume = false;
  {
    MutexLock lock(mu_);
    // A failed payload stays awaited: a finish that is read before End must not be taken.
    if (status.ok()) --awaited_;
    finish = reading_ == Reading::kHolds && awaited_ == 0 && !ended_;
    resume = reading_ == Reading::kPauses;
    // Nobody reads or processes a message now, so this thread may.
    if (finish || resume) reading_ = Reading::kTakes;
  }
  if (!status.ok()) return End(status);
  if (finish) return TakeReceived();
  if (resume) GoOn(absl::OkStatus());
}

absl::StatusOr<bool> PushStream::Take(proto::Slices slices) {
  bool awaits_payloads = false;
  {
    MutexLock lock(mu_);
    awaits_payloads = awaited_ > 0 && !Has(kernels::ChannelBug::kFinishDoesNotWait);
  }
  const auto callbacks_of_stream = [this] {
    PushCallbacks callbacks;
    callbacks.on_credit = [self = shared_from_this()](uint64_t bytes) { self->AddCredit(bytes); };
    callbacks.on_ended = [self = shared_from_this()](const absl::Status& status) {
      self->End(status);
    };
    return callbacks;
  };
  KAON_ASSIGN_OR_RETURN(PushIntake::Answer answer,
                        intake_.Take(slices, callbacks_of_stream, awaits_payloads));
  if (answer.waits) {
    {
      MutexLock lock(mu_);
      // The last payload may have been added meanwhile.
      if (awaited_ > 0) {
        reading_ = Reading::kHolds;
        return false;
      }
    }
    KAON_ASSIGN_OR_RETURN(answer, intake_.Take(slices, callbacks_of_stream));
  }
  if (answer.announced.has_value()) {
    KAON_RETURN_IF_ERROR(Await(*std::move(answer.announced)));
  }
  if (!answer.opened.has_value() && !answer.finished) return true;
  MutexLock lock(mu_);
  opened_ = std::move(answer.opened);
  finished_ = answer.finished;
  WriteLocked();
  return true;
}

void PushStream::AddCredit(uint64_t bytes) {
  MutexLock lock(mu_);
  credit_bytes_ += bytes;
  WriteLocked();
}

void PushStream::WriteLocked() {
  if (ended_ || writing_) return;
  v1::PushResponse response;
  bool last = false;
  if (opened_.has_value()) {
    *response.mutable_opened() = *std::exchange(opened_, std::nullopt);
  } else if (finished_) {
    // Drop any remaining credit: the push is over.
    response.mutable_finished();
    last = true;
  } else if (credit_bytes_ > 0) {
    response.set_credit_bytes(std::exchange(credit_bytes_, 0));
  } else {
    return;
  }
  const grpc::Slice slice(response.SerializeAsString());
  sent_ = grpc::ByteBuffer(&slice, 1);
  writing_ = true;
  if (!last) return StartWrite(&sent_);
  ended_ = true;
  StartWriteAndFinish(&sent_, grpc::WriteOptions(), grpc::Status::OK);
}

void PushStream::OnWriteDone(bool ok) {
  if (!ok) return End(absl::CancelledError("the worker is gone"));
  MutexLock lock(mu_);
  writing_ = false;
  WriteLocked();
}

void PushStream::OnCancel() { End(absl::CancelledError("the worker is gone")); }

void PushStream::End(const absl::Status& status) {
  MutexLock lock(mu_);
  if (ended_) return;
  ended_ = true;
  intake_.NoteEnd(status);
  if (session_ > 0) nccl_->Fail(session_, kUnfinished);
  Finish(proto::ToGrpc(status));
}

void PushStream::OnDone() {
  intake_.Close();
  // This may be the last owner.
  const std::shared_ptr<PushStream> self = std::move(self_);
}

}  // namespace kaon::shard
