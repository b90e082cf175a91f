#include "client/push_queue.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kaon::client {

void PushQueue::Add(ContributionKey key, const TensorView& tensor) {
  const auto [entry, added] = entries_.emplace(key, Entry{tensor});
  CHECK(added) << "parameter " << key.first << ", micro-batch " << key.second << " queued twice";
  const auto received = received_.find(key);
  // A shard that has more than this tensor is found out at the next Open.
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
  // The first stream of a step opens with the whole window, and so does that of a later round whose
  // shard has nothing. What another one lacks of it is in the shard's staging, from streams before,
  // and is credited on this one.
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
  // Credit does not say for which chunks it is, and a shard folds in rank order, not in ours: only
  // when nothing is in flight is it certain what was accepted.
  if (in_flight_bytes_ > 0) return;
  for (const ContributionKey& key : unacknowledged_) {
    Entry& entry = entries_.at(key);
    if (entry.accepted) continue;
    entry.accepted = true;
    accepted_.push_back(key);
  }
  unacknowledged_.clear();
}

uint64_t PushQueue::ChunkBytes(DType dtype) const {
  const uint64_t size = SizeOf(dtype);
  const uint64_t most = std::min<uint64_t>(max_chunk_bytes_, window_bytes_ / 2);
  return std::max(most - most % size, size);
}

std::optional<ChunkToSend> PushQueue::Next(uint64_t budget_bytes) {
  if (!open_ || unsent_.empty()) return std::nullopt;
  const ContributionKey key = *unsent_.begin();
  Entry& entry = entries_.at(key);
  const uint64_t size = SizeOf(entry.tensor.dtype);
  const uint64_t bytes =
      std::min((entry.tensor.num_elements - entry.sent) * size, ChunkBytes(entry.tensor.dtype));
  if (bytes > credit_bytes_ || bytes > budget_bytes) return std::nullopt;
  ChunkToSend chunk;
  chunk.key = key;
  chunk.offset = entry.sent;
  chunk.num_elements = bytes / size;
  chunk.dtype = entry.tensor.dtype;
  const auto* elements = static_cast<const std::byte*>(entry.tensor.elements);
  chunk.payload = absl::MakeConstSpan(elements + entry.sent * size, bytes);
  entry.sent += chunk.num_elements;
  credit_bytes_ -= bytes;
  in_flight_bytes_ += bytes;
  if (entry.sent == entry.tensor.num_elements) {
    unsent_.erase(unsent_.begin());
    unacknowledged_.push_back(key);
  }
  return chunk;
}

std::vector<ContributionKey> PushQueue::TakeAccepted() { return std::exchange(accepted_, {}); }

}  // namespace kaon::client
