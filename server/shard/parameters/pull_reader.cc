#include "server/shard/parameters/pull_reader.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "proto/crc32c.h"
#include "proto/status_macros.h"
#include "proto/tensor_stream.h"
#include "proto/text.h"
#include "server/auth/peer_identity.h"
#include "server/config/log_facts.h"

namespace kaon::shard {

PullReader::~PullReader() {
  if (reader_ == 0) return;
  for (uint32_t id : request_.parameter_ids()) publisher_.Unpin(reader_, id);
}

absl::Status PullReader::Open(v1::PullRequest request) {
  request_ = std::move(request);
  if (peer_.job.has_value() && *peer_.job != request_.job()) {
    return absl::PermissionDeniedError(absl::StrCat("certificate of job '",
                                                    proto::Excerpt(*peer_.job), "', job '",
                                                    proto::Excerpt(request_.job()), "' pulled"));
  }
  KAON_RETURN_IF_ERROR(publisher_.CheckPull(request_));
  reader_ = publisher_.Pin(request_);
  return absl::OkStatus();
}

absl::StatusOr<bool> PullReader::Await(std::function<void()> ready) {
  // Within a parameter, each Read checks that the version still exists.
  if (next_element_ > 0) return true;
  KAON_RETURN_IF_ERROR(publisher_.CheckTimeline(request_.timeline()));
  KAON_ASSIGN_OR_RETURN(waiter_, publisher_.Await(request_.parameter_ids(next_parameter_),
                                                  request_.step(), std::move(ready)));
  return waiter_ == 0;
}

void PullReader::Forget() {
  if (waiter_ != 0) publisher_.Forget(waiter_);
}

std::vector<v1::TensorChunk> PullReader::Next() {
  const uint64_t element_bytes = proto::WireSizeOf(request_.dtype());
  std::vector<v1::TensorChunk> chunks;
  uint64_t bytes = 0;
  while (!done() && chunks.size() < proto::kMaxPieces) {
    const uint32_t id = request_.parameter_ids(next_parameter_);
    // 0 if the job was deleted meanwhile: Read says so.
    const uint64_t all = publisher_.num_elements(id);
    const uint64_t left = all - std::min(all, next_element_);
    const uint64_t most = (proto::kMaxChunkBytes - bytes) / element_bytes;
    // Append only a parameter that fits whole and is readable now.
    if (!chunks.empty() && (left > most || !publisher_.IsReadable(id, request_.step()))) break;
    v1::TensorChunk& chunk = chunks.emplace_back();
    chunk.set_parameter_id(id);
    chunk.set_offset(next_element_);
    chunk.set_num_elements(std::min(left, most));
    chunk.set_dtype(request_.dtype());
    bytes += chunk.num_elements() * element_bytes;
    next_element_ += chunk.num_elements();
    if (left > most) break;
    ++next_parameter_;
    next_element_ = 0;
  }
  return chunks;
}

uint64_t PullReader::BytesOf(const std::vector<v1::TensorChunk>& chunks) const {
  uint64_t bytes = 0;
  for (const v1::TensorChunk& chunk : chunks) {
    bytes += chunk.num_elements() * proto::WireSizeOf(request_.dtype());
  }
  return bytes;
}

absl::Status PullReader::Read(std::vector<v1::TensorChunk>& chunks, kernels::Region to) {
  const auto dtype = static_cast<kernels::DType>(request_.dtype());
  uint64_t at = 0;
  for (v1::TensorChunk& chunk : chunks) {
    const kernels::Region part = to.Sub(at, chunk.num_elements() * kernels::SizeOf(dtype));
    at += part.size();
    const absl::Status read =
        publisher_.Read(chunk.parameter_id(), request_.step(), chunk.offset(), dtype, part);
    if (!read.ok()) {
      // The end of the timeline, or of the job, explains a version that is gone.
      KAON_RETURN_IF_ERROR(publisher_.CheckTimeline(request_.timeline()));
      return read;
    }
    if (part.space() == kernels::Space::kHost) {
      chunk.set_crc32c(proto::Crc32c(part.data(), part.size()));
    }
    const uint64_t end = chunk.offset() + chunk.num_elements();
    if (end == publisher_.num_elements(chunk.parameter_id())) {
      publisher_.Unpin(reader_, chunk.parameter_id());
    }
  }
  // Each parameter was unpinned at its end.
  if (done()) reader_ = 0;
  // The same version number may belong to another timeline by now.
  return publisher_.CheckTimeline(request_.timeline());
}

void PullReader::NoteEnd(const absl::Status& status) const {
  if (status.ok() || absl::IsCancelled(status)) return;
  counts_.Add(monitor::Event::kPullRefused, status.code());
  const config::LogPeer from(auth::PeerName(peer_));
  LOG_EVERY_T(WARNING, 1) << "pull of " << auth::PeerName(peer_)
                          << " refused: " << monitor::ForLog(status);
}

}  // namespace kaon::shard
