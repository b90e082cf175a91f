#include "server/shard/transport/control_stream.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
#include "proto/grpc_status.h"

namespace kaon::shard {

ControlStream* ControlStream::Start(StepLoop& loop, std::string peer) {
  std::shared_ptr<ControlStream> stream(new ControlStream(loop));
  stream->self_ = stream;
  ControlSink sink;
  sink.peer = std::move(peer);
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
  if (!ok) {
    MutexLock lock(mu_);
    // Earlier messages still get their answers.
    half_closed_ = true;
    if (backlog_.idle()) EndLocked(absl::OkStatus());
    return;
  }
  ControlBacklog::Fate fate;
  {
    MutexLock lock(mu_);
    fate = backlog_.Add(received_);
  }
  if (fate == ControlBacklog::Fate::kWork) {
    Work(std::move(received_));
  } else if (fate == ControlBacklog::Fate::kDropped) {
    // The step thread may be busy for long. Tell the sender that the process lives.
    loop_.AnswerWhileBusy(stream_, received_.ballot());
  }
  Read();
}

void ControlStream::Work(v1::CoordinatorToShard message) {
  if (!loop_.OnControl(stream_, std::move(message), SteadyNow(),
                       [self = shared_from_this()] { self->OnWorkedOff(); })) {
    End(absl::UnavailableError("the shard is shutting down"));
  }
}

void ControlStream::OnWorkedOff() {
  std::optional<v1::CoordinatorToShard> next;
  {
    MutexLock lock(mu_);
    next = backlog_.Next();
    if (!next.has_value() && half_closed_) EndLocked(absl::OkStatus());
  }
  if (next.has_value()) Work(*std::move(next));
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
  // This may be the last owner.
  const std::shared_ptr<ControlStream> self = std::move(self_);
}

}  // namespace kaon::shard
