#include "server/shard/control_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
#include "proto/grpc_status.h"

namespace kaon::shard {

ControlStream* ControlStream::Start(StepLoop& loop) {
  std::shared_ptr<ControlStream> stream(new ControlStream(loop));
  stream->self_ = stream;
  ControlSink sink;
  sink.send = [stream](v1::ShardToCoordinator message) { stream->Send(std::move(message)); };
  sink.end = [stream](const absl::Status& status) { stream->End(status); };
  stream->stream_ = loop.OpenStream(std::move(sink));
  stream->Read();
  return stream.get();
}

void ControlStream::Read() {
  MutexLock lock(mu_);
  if (!ended_) StartRead(&received_);
}

void ControlStream::OnReadDone(bool ok) {
  if (!ok) return End(absl::OkStatus());
  // The next message is read when this one is worked off: that bounds the loop's queue.
  if (!loop_.OnControl(stream_, std::move(received_), SteadyNow(),
                       [self = shared_from_this()] { self->Read(); })) {
    End(absl::UnavailableError("the shard is shutting down"));
  }
}

void ControlStream::Send(v1::ShardToCoordinator message) {
  MutexLock lock(mu_);
  if (ended_) return;
  if (answers_.size() >= kMaxWaitingAnswers) {
    return EndLocked(absl::ResourceExhaustedError(
        absl::StrCat(answers_.size(), " answers wait for the coordinator, expecting at most ",
                     kMaxWaitingAnswers)));
  }
  answers_.push_back(std::move(message));
  WriteLocked();
}

void ControlStream::WriteLocked() {
  if (ended_ || writing_ || answers_.empty()) return;
  writing_ = true;
  StartWrite(&answers_.front());
}

void ControlStream::OnWriteDone(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  answers_.pop_front();
  if (!ok) return EndLocked(absl::CancelledError("the coordinator is gone"));
  WriteLocked();
}

void ControlStream::OnCancel() { End(absl::CancelledError("the coordinator is gone")); }

void ControlStream::End(const absl::Status& status) {
  MutexLock lock(mu_);
  EndLocked(status);
}

void ControlStream::EndLocked(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  Finish(proto::ToGrpc(status));
}

void ControlStream::OnDone() {
  loop_.CloseStream(stream_);
  // May be the last owner.
  const std::shared_ptr<ControlStream> self = std::move(self_);
}

}  // namespace kaon::shard
