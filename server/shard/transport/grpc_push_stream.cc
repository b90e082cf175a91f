#include "server/shard/transport/grpc_push_stream.h"

#include <grpcpp/support/slice.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"

namespace kaon::shard {

namespace {

// Size of a chunk, its header, and the parameter ids of a finish.
constexpr size_t kMaxMessageBytes = proto::kMaxChunkBytes + (64 << 10);

}  // namespace

PushStream::PushStream(GradientAccumulator& accumulator, monitor::EventCounts& counts,
                       proto::Identity peer)
    : intake_(accumulator, counts, std::move(peer)) {}

PushStream* PushStream::Start(GradientAccumulator& accumulator, monitor::EventCounts& counts,
                              proto::Identity peer) {
  std::shared_ptr<PushStream> stream(new PushStream(accumulator, counts, std::move(peer)));
  stream->self_ = stream;
  stream->StartRead(&stream->received_);
  return stream.get();
}

void PushStream::OnReadDone(bool ok) {
  if (!ok) {
    // After a finish, the last write ends the call.
    if (!intake_.finished()) {
      End(absl::InvalidArgumentError("the push stream ended without a finish"));
    }
    return;
  }
  std::vector<grpc::Slice> buffers;
  absl::Status status;
  if (received_.Length() > kMaxMessageBytes) {
    status = absl::ResourceExhaustedError(absl::StrCat(
        "message of ", received_.Length(), " bytes pushed, expecting at most ", kMaxMessageBytes));
  } else if (const grpc::Status dumped = received_.Dump(&buffers); !dumped.ok()) {
    status = proto::FromGrpc(dumped);
  } else {
    std::vector<absl::Span<const std::byte>> slices;
    for (const grpc::Slice& buffer : buffers) {
      slices.push_back(
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(buffer.begin()), buffer.size()));
    }
    status = Take(slices);
  }
  if (!status.ok()) return End(status);
  // The next read overwrites the memory of these slices.
  MutexLock lock(mu_);
  if (!ended_) StartRead(&received_);
}

absl::Status PushStream::Take(proto::Slices slices) {
  KAON_ASSIGN_OR_RETURN(PushIntake::Answer answer, intake_.Take(slices, [this] {
    PushCallbacks callbacks;
    callbacks.on_credit = [self = shared_from_this()](uint64_t bytes) { self->AddCredit(bytes); };
    callbacks.on_ended = [self = shared_from_this()](const absl::Status& status) {
      self->End(status);
    };
    return callbacks;
  }));
  if (!answer.opened.has_value() && !answer.finished) return absl::OkStatus();
  MutexLock lock(mu_);
  opened_ = std::move(answer.opened);
  finished_ = answer.finished;
  WriteLocked();
  return absl::OkStatus();
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
  Finish(proto::ToGrpc(status));
}

void PushStream::OnDone() {
  intake_.Close();
  // This may be the last owner.
  const std::shared_ptr<PushStream> self = std::move(self_);
}

}  // namespace kaon::shard
