#include "client/transport/shm_call.h"

#include "proto/grpc_status.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::client {

absl::Status ShmCall::Run(proto::ShmLink& link, uint32_t number) {
  {
    MutexLock lock(mu_);
    link_ = &link;
  }
  const absl::Status status = Carry(link, number);
  if (!status.ok()) Stop(proto::ConnectionLost(status.message()));
  MutexLock lock(mu_);
  link_ = nullptr;
  return status;
}

absl::Status ShmCall::Carry(proto::ShmLink& link, uint32_t number) {
  bool begun = false;
  while (!over()) {
    if (cancelled()) Stop(absl::CancelledError("cancelled by the caller"));
    if (Patience() <= absl::ZeroDuration()) {
      Stop(absl::DeadlineExceededError("the shard did not answer in time"));
    }
    if (over()) break;
    KAON_ASSIGN_OR_RETURN(const bool advanced, Advance(link, number, &begun));
    if (advanced) {
      link.Ring();
    } else if (!over()) {
      KAON_RETURN_IF_ERROR(link.Await(Patience()));
    }
  }
  return begun && !told_ ? Abandon(link, number) : absl::OkStatus();
}

absl::StatusOr<bool> ShmCall::Advance(proto::ShmLink& link, uint32_t number, bool* begun) {
  KAON_ASSIGN_OR_RETURN(const auto record, link.reader().Peek());
  if (record.has_value()) {
    // Other records belong to calls that were abandoned.
    if (record->header.call == number) Take(*record);
    link.reader().Advance(*record);
  }
  bool written = false;
  if (!*begun) {
    KAON_ASSIGN_OR_RETURN(written, Begin(link, number));
    *begun = written;
  } else if (!over()) {
    KAON_ASSIGN_OR_RETURN(written, Write(link, number));
  }
  return record.has_value() || written;
}

absl::Status ShmCall::Abandon(proto::ShmLink& link, uint32_t number) {
  const proto::RingHeader header = {0, static_cast<uint32_t>(proto::ShmRecord::kCancel), number, 0};
  KAON_ASSIGN_OR_RETURN(const bool written, link.Write(header, ""));
  link.Ring();
  // Do not wait for a shard that does not read: the end of the session tells it the same.
  return written ? absl::OkStatus() : absl::UnavailableError("the shard does not read");
}

void ShmCall::Stop(const absl::Status& status) {
  if (!result_.has_value()) result_ = status;
}

void ShmCall::StopTold(const absl::Status& status) {
  told_ = true;
  Stop(status);
}

std::optional<absl::Status> ShmCall::EndOf(const proto::RingReader::Record& record) {
  if (record.header.kind != static_cast<uint32_t>(proto::ShmRecord::kEnd)) return std::nullopt;
  const absl::string_view message(reinterpret_cast<const char*>(record.body.data()),
                                  record.body.size());
  return absl::Status(static_cast<absl::StatusCode>(record.header.code), proto::OneLine(message));
}

void ShmCall::Wake() {
  MutexLock lock(mu_);
  if (link_ != nullptr) link_->Wake();
}

void ShmCall::CancelRun() {
  MutexLock lock(mu_);
  cancelled_ = true;
  if (link_ != nullptr) link_->Wake();
}

bool ShmCall::cancelled() const {
  MutexLock lock(mu_);
  return cancelled_;
}

}  // namespace kaon::client
