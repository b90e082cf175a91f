// Bounds the memory of pulls over gRPC, whatever their readers do. A pull holds a message until
// gRPC has sent it, and its request with the pins of its parameters until its end. Peers take turns
// to send. None gets more than half of the room for messages, nor, beyond its first pull, of the
// room for requests. Among the connections of a peer, those that read their last message in time go
// first, and the others get half of the peer's room. A message that has not been read for
// `most_unread` is cut as soon as another one waits. Thread-safe. Owned by ShardDataService.
#ifndef KAON_SERVER_SHARD_TRANSPORT_PULL_ADMISSION_H_
#define KAON_SERVER_SHARD_TRANSPORT_PULL_ADMISSION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"

namespace kaon::shard {

class PullAdmission {
 public:
  using PullId = uint64_t;
  struct Limits {
    // Messages of at most kMaxChunkBytes that are being sent.
    size_t messages = 4;
    // Memory of the pulls under way.
    uint64_t request_bytes = uint64_t{4} << 20;
    absl::Duration most_unread = absl::Seconds(2);
  };
  // Who pulls.
  struct Source {
    // The unit of fairness.
    std::string peer;
    std::string connection;
  };
  // Gives pulls a 32nd of the shard's budget twice: for messages, and for requests. Each gets at
  // least 4 MiB and at most 64 MiB.
  static Limits Share(uint64_t memory_bytes);
  // Returns the memory that a request of so many bytes and parameters holds until its end.
  static uint64_t RequestBytes(uint64_t message_bytes, int num_parameters);

  explicit PullAdmission(const Limits& limits);
  ~PullAdmission();

  // Admits a pull. The first one of a peer is admitted whenever no other peer has pulls.
  // RESOURCE_EXHAUSTED with the arithmetic. `on_unread` is called at most once, before Close, on a
  // thread of this object without a lock held.
  absl::StatusOr<PullId> Open(const Source& source, uint64_t request_bytes,
                              std::function<void()> on_unread);
  // Returns whether the pull may send a message now. Otherwise calls `ready` once it may, as
  // on_unread, unless Close comes first.
  bool BeginMessage(PullId pull, std::function<void()> ready);
  void EndMessage(PullId pull);
  // Idempotent. Callbacks may still be running.
  void Close(PullId pull);

  // Returns the numbers of pulls under way, and of messages that are being sent.
  size_t num_pulls() const;
  size_t num_messages() const;

 private:
  // Of a connection: whether it read its last message within `most_unread`.
  enum Standing { kReader, kUnknown };
  struct Pull {
    Source source;
    uint64_t request_bytes = 0;
    std::function<void()> on_unread;
    // As the connection was when the pull last asked for room.
    Standing standing = kUnknown;
    // Set while the pull waits.
    std::function<void()> ready;
    absl::Time sending_since;
  };
  struct Peer {
    uint64_t request_bytes = 0;
    size_t pulls = 0;
    // Both by Standing.
    std::array<size_t, 2> messages = {};
    std::array<std::deque<PullId>, 2> waiting;

    bool waits() const { return !waiting[kReader].empty() || !waiting[kUnknown].empty(); }
  };
  using Calls = std::vector<std::function<void()>>;

  bool HasRoomLocked(const Peer& peer, Standing standing) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartLocked(PullId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StopLocked(PullId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes whether a connection reads.
  void NoteReaderLocked(const std::string& connection, bool reads)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the pull of `peer` that may send next, if there is room for one.
  std::optional<PullId> NextLocked(Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives free room to those that wait, one of each peer in turn.
  void TakeReadyLocked(Calls* calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes messages that have not been read for too long. Returns when the next one will be.
  absl::Time TakeUnreadLocked(absl::Time now, Calls* calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();

  const Limits limits_;

  mutable Mutex mu_;
  // Signaled when there is room, or somebody waits.
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  PullId next_pull_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<PullId, Pull> pulls_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Peer> peers_ ABSL_GUARDED_BY(mu_);
  // Those that send, and peers with pulls that wait, in the order of their turns.
  std::set<PullId> sending_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mu_);
  // Connections that read their last message in time, the newest ones, with the number of that
  // reading.
  std::map<std::string, uint64_t> readers_ ABSL_GUARDED_BY(mu_);
  uint64_t next_reader_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t request_bytes_ ABSL_GUARDED_BY(mu_) = 0;

  std::thread thread_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_PULL_ADMISSION_H_
