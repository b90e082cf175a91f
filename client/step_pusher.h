// Sends all contributions of one step of one worker. Holds the queued contributions, one stream to
// each shard, and the lease on the caller's memory. Limits the bytes in flight over all streams.
// Shared by the step and its streams; thread-safe.
#ifndef KAON_CLIENT_STEP_PUSHER_H_
#define KAON_CLIENT_STEP_PUSHER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/kaon/future.h"
#include "client/transport/push_queue.h"
#include "client/transport/shard_channel.h"
#include "client/transport/transfer_counters.h"
#include "client/worker_session.h"
#include "kernels/mutex.h"

namespace kaon::client {

struct StepPusherOptions {
  std::string job;
  uint64_t timeline = 0;
  uint64_t step = 0;
  uint32_t rank = 0;
  uint32_t num_shards = 0;
  // Payload bytes; at least one chunk.
  uint64_t max_bytes_in_flight = 0;
  // Shared with the whole client.
  std::shared_ptr<TransferCounters> counters;
};

class StepPusher : public std::enable_shared_from_this<StepPusher> {
 public:
  explicit StepPusher(StepPusherOptions options);

  // Queues a contribution; call it once for each key. Sets `accepted` when the shard has all of it
  // or the step is over. After Close, sets it at once.
  void Push(uint32_t shard, ContributionKey key, const TensorView& tensor,
            const Promise<Done>& accepted) ABSL_LOCKS_EXCLUDED(mu_);

  // Call it after the last Push. Each stream ends with its shard's entry of `by_shard`.
  void Finish(std::vector<v1::PushFinish> by_shard) ABSL_LOCKS_EXCLUDED(mu_);

  // Opens a stream to start.shard in place of any earlier one, and sends what the shard lacks.
  // Calls `done` when the stream ends, unless it was replaced or cancelled, or Close was called.
  void StartStream(const StartPush& start, ShardChannel& channel,
                   std::function<void(const absl::Status&)> done) ABSL_LOCKS_EXCLUDED(mu_);

  void CancelStream(uint32_t shard) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns when the oldest contribution was pushed that no shard has accepted; InfiniteFuture if
  // there is none. A time of the client's loop.
  absl::Time OldestUnaccepted() const ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the shards that lack a contribution which was pushed; after Finish, all shards.
  std::vector<uint32_t> LackingShards() const ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the step: cancels the streams and settles every promise with `outcome`. Calls `on_free`
  // once the caller's memory is no longer read: perhaps before Close returns, on any thread. Later
  // calls do nothing.
  void Close(const absl::Status& outcome, std::function<void()> on_free) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Source;

  // Destroyed with the last slice over the caller's memory.
  struct Lease {
    ~Lease() {
      if (on_free) on_free();
    }
    std::function<void()> on_free;
  };

  struct Shard {
    explicit Shard(size_t max_chunk_bytes) : queue(max_chunk_bytes) {}
    PushQueue queue;
    // Number of the current stream; results of earlier streams are ignored.
    uint64_t generation = 0;
    // Ballot and round of the newest stream.
    v1::Ballot ballot;
    uint64_t round = 0;
    std::shared_ptr<PushStream> stream;
    std::function<void(const absl::Status&)> done;
    bool finish_sent = false;
    // The stream had something to send, but no credit or budget for it.
    bool starved = false;
  };

  struct Unaccepted {
    uint32_t shard;
    Promise<Done> promise;
    absl::Time pushed;
  };

  // Work to do after the lock is released: settle promises, resume streams.
  struct Afterwards {
    std::vector<Promise<Done>> accepted;
    std::vector<std::shared_ptr<PushStream>> resume;
    void Run();
  };

  absl::Status OnOpened(uint32_t shard, uint64_t generation, const v1::PushOpened& opened)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnCredit(uint32_t shard, uint64_t generation, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  PushMessage Next(uint32_t shard, uint64_t generation) ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone(uint32_t shard, uint64_t generation, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);

  bool IsCurrentLocked(uint32_t shard, uint64_t generation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t BudgetLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds the streams that may be able to send, because fewer bytes are in flight.
  void ResumeStarvedLocked(Afterwards& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeAcceptedLocked(Shard& shard, Afterwards& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Detaches the current stream of a shard and returns it; the caller cancels it.
  std::shared_ptr<PushStream> DetachStreamLocked(Shard& shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const StepPusherOptions options_;

  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status outcome_ ABSL_GUARDED_BY(mu_);
  std::vector<Shard> shards_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::PushFinish> finish_ ABSL_GUARDED_BY(mu_);
  std::map<ContributionKey, Unaccepted> unaccepted_ ABSL_GUARDED_BY(mu_);
  // Shared with every slice in flight; Close releases it.
  std::shared_ptr<Lease> lease_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_STEP_PUSHER_H_
