#include "server/shard/gradients/push_intake.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/auth/peer_identity.h"

namespace kaon::shard {

PushIntake::PushIntake(GradientAccumulator& accumulator, monitor::EventCounts& counts,
                       proto::Identity peer)
    : accumulator_(accumulator), counts_(counts), peer_(std::move(peer)) {}

absl::StatusOr<PushIntake::Answer> PushIntake::Take(proto::Slices slices,
                                                    absl::FunctionRef<PushCallbacks()> callbacks) {
  KAON_ASSIGN_OR_RETURN(const proto::DecodedPush decoded, proto::DecodePush(slices));
  const v1::PushRequest& message = decoded.message;
  const bool has_chunks = message.has_chunk() || message.pieces_size() > 0;
  const int bodies =
      message.has_open() + message.has_finish() + message.has_chunk() + (message.pieces_size() > 0);
  if (bodies != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(bodies, " of open, finish, chunk and pieces are set, expecting 1"));
  }
  if (!has_chunks && !decoded.payload.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload of ", decoded.payload_bytes(), " bytes without a chunk"));
  }
  if (message.has_open()) return Open(message.open(), callbacks);
  if (!stream_.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the first message is a ", has_chunks ? "chunk" : "finish", ", expecting open"));
  }
  if (has_chunks) {
    KAON_ASSIGN_OR_RETURN(const proto::ChunkViews views, proto::SplitPayload(decoded));
    PassFailpoint(Failpoint::shard_chunk_received);
    KAON_RETURN_IF_ERROR(accumulator_.AddChunks(*stream_, views.chunks));
    counts_.AddBytes(monitor::Transfer::kPushed, decoded.payload_bytes());
    return Answer();
  }
  KAON_RETURN_IF_ERROR(accumulator_.Finish(*stream_, message.finish()));
  PassFailpoint(Failpoint::shard_push_finished);
  finished_ = true;
  Answer answer;
  answer.finished = true;
  return answer;
}

absl::StatusOr<PushIntake::Answer> PushIntake::Open(const v1::PushOpen& open,
                                                    absl::FunctionRef<PushCallbacks()> callbacks) {
  if (stream_.has_value()) return absl::InvalidArgumentError("open was sent twice");
  KAON_RETURN_IF_ERROR(auth::AuthorizeWorker(peer_, open.job(), open.rank()));
  KAON_ASSIGN_OR_RETURN(OpenPush opened, accumulator_.Open(open, callbacks()));
  PassFailpoint(Failpoint::shard_push_opened);
  stream_ = opened.stream;
  Answer answer;
  answer.opened = std::move(opened.opened);
  return answer;
}

void PushIntake::NoteEnd(const absl::Status& status) const {
  if (status.ok() || absl::IsCancelled(status)) return;
  if (absl::IsAborted(status)) {
    counts_.Add(monitor::Event::kPushAborted);
    LOG_EVERY_T(INFO, 1) << "push of " << auth::PeerName(peer_)
                         << " aborted: " << monitor::ForLog(status);
    return;
  }
  counts_.Add(monitor::Event::kPushRefused, status.code());
  // A rank may push before the others have begun the step. A full disk is logged where it is found.
  if (absl::IsUnavailable(status)) {
    VLOG(1) << "push of " << auth::PeerName(peer_)
            << " must be retried: " << monitor::ForLog(status);
    return;
  }
  // Limit the log: a malicious worker may retry often.
  LOG_EVERY_T(WARNING, 1) << "push of " << auth::PeerName(peer_)
                          << " refused: " << monitor::ForLog(status);
}

void PushIntake::Close() {
  if (stream_.has_value()) accumulator_.Close(*stream_);
}

}  // namespace kaon::shard
