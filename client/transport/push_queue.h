// Decides what one push stream sends next. Holds the contributions of one worker to the parameters
// of one shard. Sends the queued ones in the job's canonical order, within the shard's credit. Pure
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

// One contribution of a worker: (parameter id, micro-batch). Contributions are sent in the order of
// their keys.
using ContributionKey = std::pair<uint32_t, uint32_t>;

// Number of elements of a contribution that the shard already has.
struct ReceivedElements {
  ContributionKey key;
  uint64_t num_elements = 0;
};

// A run of elements to send as one chunk.
struct ChunkToSend {
  ContributionKey key;
  uint64_t offset = 0;
  uint64_t num_elements = 0;
  DType dtype = DType::kFloat32;
  // Memory of the caller's tensor: of the device with that number, or of the host (-1).
  absl::Span<const std::byte> payload;
  int device = -1;
  // Event that the payload is ready after (TensorView); null: it is ready.
  void* ready_event = nullptr;
};

class PushQueue {
 public:
  explicit PushQueue(size_t max_chunk_bytes) : max_chunk_bytes_(max_chunk_bytes) {}

  // Queues a contribution; call it once for each key. Its memory must stay valid while the queue is
  // used.
  void Add(ContributionKey key, const TensorView& tensor);

  // Begins a new round with the next stream. If the shard then has nothing, it may be another
  // process with another window.
  void BeginRound() { is_new_round_ = true; }

  // Opens a stream: sending restarts after the elements that the shard has. INTERNAL names both
  // numbers if the shard claims more elements than a contribution has.
  absl::Status Open(uint64_t credit_bytes, absl::Span<const ReceivedElements> received);

  // Closes the stream. The bytes in flight are unknown until the next Open.
  void Close();

  // Adds credit for payload bytes that the shard folded or dropped. More bytes than are in flight
  // count as all of them.
  void AddCredit(uint64_t bytes);

  // Returns the chunks of the next message; they count as sent. Returns several chunks only if each
  // ends its contribution and all fit in one message. The message has at most `budget_bytes` and
  // fits the credit. Returns nothing if nothing is queued, or if budget or credit is too small: a
  // message is never made smaller to fit.
  std::vector<ChunkToSend> Next(uint64_t budget_bytes);

  // Returns the contributions that the shard has accepted completely since the last call.
  std::vector<ContributionKey> TakeAccepted();

  bool open() const { return open_; }
  // Returns true if everything queued has been sent on the open stream.
  bool all_sent() const { return open_ && unsent_.empty(); }
  // Payload bytes sent on the open stream and not yet credited.
  uint64_t in_flight_bytes() const { return in_flight_bytes_; }

 private:
  struct Entry {
    TensorView tensor;
    uint64_t sent = 0;
    bool accepted = false;
  };

  // Largest message: half the window, so that one message travels while the shard acknowledges
  // another.
  uint64_t MessageBytes() const;
  // Returns the next chunk of a contribution, in at most `most_bytes`.
  static ChunkToSend ChunkOf(ContributionKey key, const Entry& entry, uint64_t most_bytes);
  void ResumeFrom(ContributionKey key, Entry& entry, uint64_t received);

  const size_t max_chunk_bytes_;
  std::map<ContributionKey, Entry> entries_;
  // Keys of entries that are not completely sent.
  std::set<ContributionKey> unsent_;
  // Elements that the shard has, also of contributions that are not queued here yet.
  std::map<ContributionKey, uint64_t> received_;
  // Completely sent, not yet known to be accepted.
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
