// What one push stream sends next: the contributions of one worker to the parameters of one shard,
// in the job's canonical order among those that are queued, within the shard's credit. Pure
// bookkeeping, no I/O and no locks; owned by StepPusher, one thread at a time.
#ifndef KAON_CLIENT_TRANSPORT_PUSH_QUEUE_H_
#define KAON_CLIENT_TRANSPORT_PUSH_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/kaon/tensor.h"

namespace kaon::client {

// One contribution of a worker: (parameter id, micro-batch). Their order is the order of sending.
using ContributionKey = std::pair<uint32_t, uint32_t>;

// Elements of a contribution that the shard already has.
struct ReceivedElements {
  ContributionKey key;
  uint64_t num_elements = 0;
};

// A run of elements to be sent as one chunk.
struct ChunkToSend {
  ContributionKey key;
  uint64_t offset = 0;
  uint64_t num_elements = 0;
  DType dtype = DType::kFloat32;
  // Memory of the caller's tensor.
  absl::Span<const std::byte> payload;
};

class PushQueue {
 public:
  explicit PushQueue(size_t max_chunk_bytes) : max_chunk_bytes_(max_chunk_bytes) {}

  // Queues a contribution; each key once. Its memory must stay valid while the queue is used.
  void Add(ContributionKey key, const TensorView& tensor);

  // The next stream is of another round. A shard that has nothing then may be another process, with
  // another window.
  void BeginRound() { is_new_round_ = true; }

  // A stream is open: sending starts over from what the shard has. INTERNAL, naming both, when the
  // shard claims to have more of a contribution than there is.
  absl::Status Open(uint64_t credit_bytes, absl::Span<const ReceivedElements> received);

  // The stream is gone: what was in flight is unknown until the next Open.
  void Close();

  // The shard folded or dropped that many payload bytes. More than there are in flight count as
  // all.
  void AddCredit(uint64_t bytes);

  // The chunks of the next message: one, or several where contributions are so small that they fit
  // into one message whole, together at most `budget_bytes` long and within the credit; they count
  // as sent. Empty if nothing is queued or there is not enough of either: messages are not cut
  // small to squeeze through.
  std::vector<ChunkToSend> Next(uint64_t budget_bytes);

  // Contributions that the shard has accepted completely since the last call.
  std::vector<ContributionKey> TakeAccepted();

  bool open() const { return open_; }
  // Everything queued has been sent on the open stream.
  bool all_sent() const { return open_ && unsent_.empty(); }
  // Payload bytes sent on the open stream and not yet credited.
  uint64_t in_flight_bytes() const { return in_flight_bytes_; }

 private:
  struct Entry {
    TensorView tensor;
    uint64_t sent = 0;
    bool accepted = false;
  };

  // Most bytes of a message: half the window, so that one travels while the other is acknowledged.
  uint64_t MessageBytes() const;
  // What is to be sent next of a contribution, in at most `most_bytes`.
  static ChunkToSend ChunkOf(ContributionKey key, const Entry& entry, uint64_t most_bytes);
  void ResumeFrom(ContributionKey key, Entry& entry, uint64_t received);

  const size_t max_chunk_bytes_;
  std::map<ContributionKey, Entry> entries_;
  // Keys of entries that are not sent to their end.
  std::set<ContributionKey> unsent_;
  // What the shard has of contributions, those included that are not queued here yet.
  std::map<ContributionKey, uint64_t> received_;
  // Sent to their end, not yet known to be accepted.
  std::vector<ContributionKey> unacknowledged_;
  std::vector<ContributionKey> accepted_;
  bool open_ = false;
  bool is_new_round_ = false;
  uint64_t window_bytes_ = 0;
  uint64_t credit_bytes_ = 0;
  uint64_t in_flight_bytes_ = 0;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_PUSH_QUEUE_H_
