#include "server/shard/gradients/push_intake.h"

#include <glog/logging.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/nccl/channel_bug.h"
#include "kernels/region.h"
#include "proto/crc32c.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/auth/peer_identity.h"
#include "server/config/log_facts.h"

namespace kaon::shard {

PushIntake::PushIntake(GradientAccumulator& accumulator, monitor::EventCounts& counts,
                       proto::Identity peer)
    : accumulator_(accumulator), counts_(counts), peer_(std::move(peer)) {}

absl::StatusOr<PushIntake::Answer> PushIntake::Take(proto::Slices slices,
                                                    absl::FunctionRef<PushCallbacks()> callbacks,
                                                    bool awaits_payloads) {
  KAON_ASSIGN_OR_RETURN(const proto::DecodedPush decoded, proto::DecodePush(slices));
  const v1::PushRequest& message = decoded.message;
  const bool has_chunks = message.has_chunk() || message.pieces_size() > 0;
  const int bodies =
      message.has_open() + message.has_finish() + message.has_chunk() + (message.pieces_size() > 0);
  if (bodies != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(bodies, " of open, finish, chunk and pieces are set, expecting 1"));
  }
  if (message.has_nccl() && (!has_chunks || !decoded.payload.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("nccl is set with ", has_chunks ? "" : "no chunk and ",
                     decoded.payload_bytes(), " bytes of payload, expecting chunks and none"));
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
  if (message.has_nccl()) return Announce(message);
  if (has_chunks) {
    KAON_ASSIGN_OR_RETURN(const proto::ChunkViews views, proto::SplitPayload(decoded));
    PassFailpoint(Failpoint::shard_chunk_received);
    KAON_RETURN_IF_ERROR(accumulator_.AddChunks(*stream_, views.chunks));
    counts_.AddBytes(monitor::Transfer::kPushed, decoded.payload_bytes());
    return Answer();
  }
  if (awaits_payloads) {
    Answer waits;
    waits.waits = true;
    return waits;
  }
  KAON_RETURN_IF_ERROR(accumulator_.Finish(*stream_, message.finish()));
  PassFailpoint(Failpoint::shard_push_finished);
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
  open_ = open;
  Answer answer;
  answer.opened = std::move(opened.opened);
  return answer;
}

namespace {

// Returns the headers, whether the message has one or several.
absl::Span<const v1::TensorChunk* const> HeadersOf(const v1::PushRequest& message,
                                                   std::vector<const v1::TensorChunk*>* headers) {
  if (message.has_chunk()) headers->push_back(&message.chunk());
  for (const v1::TensorChunk& piece : message.pieces()) headers->push_back(&piece);
  return *headers;
}

uint64_t BytesOf(const v1::TensorChunk& chunk) {
  return chunk.num_elements() * proto::WireSizeOf(chunk.dtype());
}

}  // namespace

absl::StatusOr<PushIntake::Answer> PushIntake::Announce(const v1::PushRequest& message) {
  if (message.pieces_size() == 1 || message.pieces_size() > static_cast<int>(proto::kMaxPieces)) {
    return absl::InvalidArgumentError(absl::StrCat(message.pieces_size(), " pieces, expecting ",
                                                   proto::kMinPieces, " .. ", proto::kMaxPieces));
  }
  std::vector<const v1::TensorChunk*> headers;
  if (!Has(kernels::ChannelBug::kHeaderNotChecked)) {
    KAON_RETURN_IF_ERROR(accumulator_.CheckHeaders(*stream_, HeadersOf(message, &headers)));
  }
  const uint64_t bytes = PayloadBytes(message);
  if (bytes > proto::kMaxChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("pieces of ", bytes, " bytes, expecting at most ", proto::kMaxChunkBytes));
  }
  PassFailpoint(Failpoint::shard_chunk_received);
  Answer answer;
  answer.announced = message;
  return answer;
}

uint64_t PushIntake::PayloadBytes(const v1::PushRequest& announced) {
  uint64_t bytes = BytesOf(announced.chunk());
  for (const v1::TensorChunk& piece : announced.pieces()) bytes += BytesOf(piece);
  return bytes;
}

absl::Status PushIntake::AddReceived(const v1::PushRequest& announced,
                                     kernels::ConstRegion payload) const {
  std::vector<const v1::TensorChunk*> headers;
  HeadersOf(announced, &headers);
  std::vector<v1::TensorChunk> chunks;
  std::vector<absl::Span<const std::byte>> payloads(headers.size());
  DeviceBytes on_device;
  if (payload.space() == kernels::Space::kDevice) {
    on_device = {payload, announced.nccl().digest()};
  }
  uint64_t at = 0;
  for (size_t i = 0; i < headers.size(); ++i) {
    chunks.push_back(*headers[i]);
    const kernels::ConstRegion part = payload.Sub(at, BytesOf(*headers[i]));
    at += part.size();
    if (!on_device.memory.empty()) continue;
    // The accumulator and its staging compare CRC32Cs, which these chunks came without.
    payloads[i] = part.host_bytes();
    chunks.back().set_crc32c(proto::Crc32c(part.data(), part.size()));
  }
  std::vector<proto::ChunkView> views;
  for (size_t i = 0; i < chunks.size(); ++i) {
    views.push_back({&chunks[i], absl::MakeConstSpan(&payloads[i], 1)});
  }
  KAON_RETURN_IF_ERROR(accumulator_.AddChunks(*stream_, views, on_device));
  counts_.AddBytes(monitor::Transfer::kPushed, payload.size());
  return absl::OkStatus();
}

void PushIntake::NoteEnd(const absl::Status& status) const {
  if (status.ok() || absl::IsCancelled(status)) return;
  const config::LogPeer from(auth::PeerName(peer_));
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
