#include "client/transport/push_queue.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/tensor_stream.h"

namespace kaon::client {

void PushQueue::Add(ContributionKey key, const TensorView& tensor) {
  const auto [entry, added] = entries_.emplace(key, Entry{tensor});
  CHECK(added) << "parameter " << key.first << ", micro-batch " << key.second << " queued twice";
  const auto received = received_.find(key);
  // The next Open rejects a shard that claims more than this tensor.
  const uint64_t have = received == received_.end() ? 0 : received->second;
  ResumeFrom(key, entry->second, std::min(have, tensor.num_elements));
}

absl::Status PushQueue::Open(uint64_t credit_bytes, absl::Span<const ReceivedElements> received) {
  received_.clear();
  for (const ReceivedElements& elements : received) {
    const auto entry = entries_.find(elements.key);
    if (entry != entries_.end() && elements.num_elements > entry->second.tensor.num_elements) {
      return absl::InternalError(absl::StrCat("parameter ", elements.key.first, ", micro-batch ",
                                              elements.key.second, ": the shard has ",
                                              elements.num_elements, " elements, there are ",
                                              entry->second.tensor.num_elements));
    }
    received_[elements.key] = elements.num_elements;
  }
  open_ = true;
  // The first stream of a step opens with the whole window. So does the first stream of a later
  // round, if its shard has nothing. Credit that another stream lacks belongs to bytes of earlier
  // streams, which the shard still stages; this stream will get it.
  if (std::exchange(is_new_round_, false) && received.empty()) window_bytes_ = 0;
  window_bytes_ = std::max(window_bytes_, credit_bytes);
  credit_bytes_ = credit_bytes;
  in_flight_bytes_ = window_bytes_ - credit_bytes;
  unsent_.clear();
  unacknowledged_.clear();
  for (auto& [key, entry] : entries_) {
    const auto have = received_.find(key);
    ResumeFrom(key, entry, have == received_.end() ? 0 : have->second);
  }
  return absl::OkStatus();
}

void PushQueue::ResumeFrom(ContributionKey key, Entry& entry, uint64_t received) {
  entry.sent = received;
  if (received < entry.tensor.num_elements) {
    unsent_.insert(key);
  } else if (!entry.accepted) {
    entry.accepted = true;
    accepted_.push_back(key);
  }
}

void PushQueue::Close() {
  open_ = false;
  credit_bytes_ = 0;
  in_flight_bytes_ = 0;
  unacknowledged_.clear();
}

void PushQueue::AddCredit(uint64_t bytes) {
  bytes = std::min(bytes, in_flight_bytes_);
  credit_bytes_ += bytes;
  in_flight_bytes_ -= bytes;
  // Credit does not name its chunks, and a shard folds in rank order, not in ours. So a
  // contribution is known to be accepted only when nothing is in flight.
  if (in_flight_bytes_ > 0) return;
  for (const ContributionKey& key : unacknowledged_) {
    Entry& entry = entries_.at(key);
    if (entry.accepted) continue;
    entry.accepted = true;
    accepted_.push_back(key);
  }
  unacknowledged_.clear();
}

uint64_t PushQueue::MessageBytes() const {
  return std::min<uint64_t>(max_chunk_bytes_, window_bytes_ / 2);
}

ChunkToSend PushQueue::ChunkOf(ContributionKey key, const Entry& entry, uint64_t most_bytes) {
  const uint64_t size = SizeOf(entry.tensor.dtype);
  ChunkToSend chunk;
  chunk.key = key;
  chunk.offset = entry.sent;
  chunk.num_elements =
      std::min(entry.tensor.num_elements - entry.sent, std::max<uint64_t>(most_bytes / size, 1));
  chunk.dtype = entry.tensor.dtype;
  const auto* elements = static_cast<const std::byte*>(entry.tensor.elements);
  chunk.payload = absl::MakeConstSpan(elements + entry.sent * size, chunk.num_elements * size);
  chunk.device = entry.tensor.device;
  chunk.ready_event = entry.tensor.ready_event;
  return chunk;
}

std::vector<ChunkToSend> PushQueue::Next(uint64_t budget_bytes) {
  std::vector<ChunkToSend> chunks;
  if (!open_) return chunks;
  const uint64_t most = MessageBytes();
  uint64_t bytes = 0;
  auto key = unsent_.begin();
  for (; key != unsent_.end() && chunks.size() < proto::kMaxPieces; ++key) {
    const Entry& entry = entries_.at(*key);
    ChunkToSend chunk = ChunkOf(*key, entry, most);
    // After the first chunk, add only chunks that end their contribution.
    const bool ends = chunk.offset + chunk.num_elements == entry.tensor.num_elements;
    if (!chunks.empty() && (!ends || bytes + chunk.payload.size() > most)) break;
    bytes += chunk.payload.size();
    chunks.push_back(chunk);
    if (!ends) break;
  }
  if (bytes > credit_bytes_ || bytes > budget_bytes) return {};
  for (const ChunkToSend& chunk : chunks) {
    Entry& entry = entries_.at(chunk.key);
    entry.sent += chunk.num_elements;
    if (entry.sent == entry.tensor.num_elements) unacknowledged_.push_back(chunk.key);
  }
  // Everything before `key` has been sent to its end.
  unsent_.erase(unsent_.begin(), key);
  credit_bytes_ -= bytes;
  in_flight_bytes_ += bytes;
  return chunks;
}

std::vector<ContributionKey> PushQueue::TakeAccepted() { return std::exchange(accepted_, {}); }

}  // namespace kaon::client
