#include "server/shard/transport/shm_session.h"

#include <glog/logging.h>

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
#include "proto/chunk_record.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/auth/peer_identity.h"

namespace kaon::shard {

namespace {

using proto::ShmRecord;

uint32_t KindOf(ShmRecord record) { return static_cast<uint32_t>(record); }

}  // namespace

ShmSession::ShmSession(const ShmBackends& backends, proto::Identity peer,
                       std::unique_ptr<proto::ShmLink> link, absl::Duration idle_limit)
    : backends_(backends),
      peer_(std::move(peer)),
      link_(std::move(link)),
      idle_limit_(idle_limit),
      message_(proto::kMaxRingBody) {}

void ShmSession::Run() {
  absl::Status status;
  while (status.ok()) {
    bool stopped = false;
    {
      MutexLock lock(mu_);
      stopped = stopped_;
    }
    // After Stop, ignore further messages, but still write the known end of the call.
    const absl::StatusOr<bool> advanced = stopped ? WriteAnswers() : Advance();
    status = advanced.status();
    if (status.ok() && *advanced) link_->Ring();
    if (stopped) break;
    if (status.ok() && *advanced) continue;
    const bool idle = !push_.has_value() && !pull_.has_value();
    const absl::Time before = SteadyNow();
    if (status.ok()) status = link_->Await(idle ? idle_limit_ : absl::InfiniteDuration());
    if (idle && SteadyNow() - before >= idle_limit_) break;
  }
  EndCall(absl::CancelledError("the worker is gone"));
  if (!absl::IsInvalidArgument(status)) return;
  backends_.counts->Add(monitor::Event::kPushRefused, status.code());
  LOG(WARNING) << "session of " << auth::PeerName(peer_) << " ended: " << status;
}

void ShmSession::Stop() {
  MutexLock lock(mu_);
  stopped_ = true;
  link_->Wake();
}

absl::StatusOr<bool> ShmSession::Advance() {
  KAON_ASSIGN_OR_RETURN(const bool answered, WriteAnswers());
  KAON_ASSIGN_OR_RETURN(const bool wrote, WriteChunks());
  // Write the end of a call before another begins: the session has state for one call only.
  if (end_.has_value()) return answered || wrote;
  KAON_ASSIGN_OR_RETURN(const bool took, TakeRecord());
  return answered || wrote || took;
}

absl::StatusOr<bool> ShmSession::TakeRecord() {
  KAON_ASSIGN_OR_RETURN(const std::optional<proto::RingReader::Record> record,
                        link_->reader().Take(&message_));
  if (!record.has_value()) return false;
  const proto::RingHeader& header = record->header;
  const bool open = push_.has_value() || pull_.has_value();
  if (header.call > number_) {
    if (open) {
      return absl::InvalidArgumentError(absl::StrCat(
          "call ", header.call, " was begun within call ", number_, ", expecting one at a time"));
    }
    KAON_RETURN_IF_ERROR(Begin(*record));
    return true;
  }
  // The record was in flight when its call ended.
  if (header.call < number_ || !open) return true;
  if (header.kind == KindOf(ShmRecord::kCancel)) {
    EndCall(absl::CancelledError("the worker is gone"));
    end_.reset();
    return true;
  }
  if (header.kind != KindOf(ShmRecord::kPushRequest) || !push_.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("a record of kind ", header.kind, " in call ",
                                                   number_, ", expecting ",
                                                   push_.has_value() ? "1 or 3" : "3"));
  }
  TakePush(record->body);
  return true;
}

absl::Status ShmSession::Begin(const proto::RingReader::Record& record) {
  const uint32_t kind = record.header.kind;
  if (kind != KindOf(ShmRecord::kPushRequest) && kind != KindOf(ShmRecord::kPullRequest)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a record of kind ", kind, " begins a call, expecting 1 or 2"));
  }
  number_ = record.header.call;
  {
    MutexLock lock(mu_);
    pending_ = Pending();
    pending_.number = number_;
  }
  if (kind == KindOf(ShmRecord::kPullRequest)) {
    OpenPull(record.body);
  } else {
    push_.emplace(*backends_.accumulator, *backends_.counts, peer_);
    TakePush(record.body);
  }
  return absl::OkStatus();
}

void ShmSession::TakePush(absl::Span<const std::byte> message) {
  const absl::StatusOr<PushIntake::Answer> answer =
      push_->Take({&message, 1}, [this] { return CallbacksOf(number_); });
  if (!answer.ok()) return EndCall(answer.status());
  if (answer->announced.has_value()) {
    return EndCall(absl::InvalidArgumentError("nccl is set over shared memory, expecting gRPC"));
  }
  if (answer->opened.has_value()) opened_ = answer->opened;
  finished_ = answer->finished;
}

PushCallbacks ShmSession::CallbacksOf(uint32_t number) {
  PushCallbacks callbacks;
  callbacks.on_credit = [self = shared_from_this(), number](uint64_t bytes) {
    self->Note(number, [bytes](Pending& pending) { pending.credit_bytes += bytes; });
  };
  callbacks.on_ended = [self = shared_from_this(), number](const absl::Status& status) {
    self->Note(number, [&status](Pending& pending) { pending.ended = status; });
  };
  return callbacks;
}

void ShmSession::Note(uint32_t number, const std::function<void(Pending&)>& note) {
  MutexLock lock(mu_);
  if (pending_.number != number) return;
  note(pending_);
  link_->Wake();
}

void ShmSession::OpenPull(absl::Span<const std::byte> message) {
  pull_.emplace(*backends_.publisher, *backends_.counts, peer_);
  pull_waits_ = false;
  v1::PullRequest request;
  if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return EndCall(absl::InvalidArgumentError(
        absl::StrCat("message of ", message.size(), " bytes is not a kaon.v1.PullRequest")));
  }
  if (const absl::Status status = pull_->Open(std::move(request)); !status.ok()) EndCall(status);
}

absl::StatusOr<bool> ShmSession::WriteChunks() {
  if (!pull_.has_value()) return false;
  if (pull_->done()) {
    EndCall(absl::OkStatus());
    return true;
  }
  {
    MutexLock lock(mu_);
    if (pull_waits_ && !std::exchange(pending_.readable, false)) return false;
  }
  // Reserve space before Await and Next, because chunks count as read after Next.
  KAON_ASSIGN_OR_RETURN(std::byte* const to, link_->writer().Reserve(proto::kMaxRingBody));
  if (to == nullptr) {
    pull_waits_ = false;
    return false;
  }
  const absl::StatusOr<bool> readable = pull_->Await([self = shared_from_this(), number = number_] {
    self->Note(number, [](Pending& pending) { pending.readable = true; });
  });
  if (!readable.ok()) {
    EndCall(readable.status());
    return true;
  }
  pull_waits_ = !*readable;
  if (pull_waits_) return false;
  std::vector<v1::TensorChunk> chunks = pull_->Next();
  const size_t bytes = pull_->BytesOf(chunks);
  const absl::StatusOr<size_t> size =
      proto::WriteChunkRecord(absl::MakeSpan(chunks), bytes, to, [&](std::byte* payload) {
        return pull_->Read(chunks, absl::MakeSpan(payload, pull_->BytesOf(chunks)));
      });
  if (!size.ok()) {
    EndCall(size.status());
    return true;
  }
  backends_.counts->AddBytes(monitor::Transfer::kPulled, bytes);
  PassFailpoint(Failpoint::shard_pull_chunk);
  link_->writer().Commit(
      {static_cast<uint32_t>(*size), KindOf(ShmRecord::kPullResponse), number_, 0});
  return true;
}

absl::StatusOr<bool> ShmSession::WriteResponse(const v1::PushResponse& response) {
  return link_->Write({0, KindOf(ShmRecord::kPushResponse), number_, 0},
                      response.SerializeAsString());
}

absl::StatusOr<bool> ShmSession::WriteAnswers() {
  uint64_t credit_bytes = 0;
  std::optional<absl::Status> ended;
  {
    MutexLock lock(mu_);
    credit_bytes = pending_.credit_bytes;
    ended = std::exchange(pending_.ended, std::nullopt);
  }
  // After an accepted finish, the finish response is the answer.
  if (ended.has_value() && !finished_) EndCall(*ended);
  bool written = false;
  if (opened_.has_value()) {
    v1::PushResponse response;
    *response.mutable_opened() = *opened_;
    KAON_ASSIGN_OR_RETURN(const bool fits, WriteResponse(response));
    if (!fits) return written;
    opened_.reset();
    written = true;
  }
  if (finished_) {
    v1::PushResponse response;
    response.mutable_finished();
    KAON_ASSIGN_OR_RETURN(const bool fits, WriteResponse(response));
    if (!fits) return written;
    finished_ = false;
    // The finish response tells the worker; the call needs no end record.
    EndCall(absl::OkStatus());
    end_.reset();
    return true;
  }
  if (credit_bytes > 0 && push_.has_value()) {
    v1::PushResponse response;
    response.set_credit_bytes(credit_bytes);
    KAON_ASSIGN_OR_RETURN(const bool fits, WriteResponse(response));
    if (!fits) return written;
    MutexLock lock(mu_);
    pending_.credit_bytes -= credit_bytes;
    written = true;
  }
  if (!end_.has_value()) return written;
  const proto::RingHeader header = {0, KindOf(ShmRecord::kEnd), number_,
                                    static_cast<uint32_t>(end_->code())};
  KAON_ASSIGN_OR_RETURN(const bool fits, link_->Write(header, proto::OneLine(end_->message())));
  if (!fits) return written;
  end_.reset();
  return true;
}

void ShmSession::EndCall(const absl::Status& status) {
  if (push_.has_value()) {
    push_->NoteEnd(status);
    push_->Close();
  }
  if (pull_.has_value()) {
    pull_->Forget();
    pull_->NoteEnd(status);
  }
  if (!push_.has_value() && !pull_.has_value()) return;
  push_.reset();
  pull_.reset();
  opened_.reset();
  finished_ = false;
  end_ = status;
}

}  // namespace kaon::shard
