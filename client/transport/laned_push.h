// Runs one push over several connections (lanes) to a shard. All chunks of one parameter use the
// same lane. The first lane opens and finishes the push and receives its credit (PushOpen.lane_of).
// LanedShardChannel creates it; its streams share it until they are done. Any thread.
#ifndef KAON_CLIENT_TRANSPORT_LANED_PUSH_H_
#define KAON_CLIENT_TRANSPORT_LANED_PUSH_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/transport/push_queue.h"
#include "client/transport/shard_channel.h"
#include "kernels/mutex.h"

namespace kaon::client {

class LanedPush : public PushStream, public std::enable_shared_from_this<LanedPush> {
 public:
  // Opens the other lanes once more than `least_lane_bytes` were taken from `source`, if the shard
  // accepts lanes. If a lane cannot open, the push continues without it. If an open lane fails, the
  // push fails.
  LanedPush(std::vector<std::shared_ptr<ShardChannel>> channels, uint64_t least_lane_bytes,
            const v1::PushOpen& open, std::shared_ptr<PushSource> source);
  // Call it once.
  void Start();

  void Resume() override;
  void Cancel() override;

 private:
  class LaneSource;

  struct Lane {
    std::shared_ptr<PushStream> stream;
    // Messages to send next: views of the caller's memory with their leases.
    std::deque<LeasedChunks> chunks;
    bool opened = false;
    bool finish_sent = false;
    bool done = false;
  };

  // These do the work of PushSource for lane `lane`.
  absl::Status OnOpened(size_t lane, const v1::PushOpened& opened) ABSL_LOCKS_EXCLUDED(mu_);
  PushMessage Next(size_t lane) ABSL_LOCKS_EXCLUDED(mu_);
  void OnLaneDone(size_t lane, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  // Adds to `resume` the streams that have something to send now.
  PushMessage TakeLocked(size_t lane, std::vector<std::shared_ptr<PushStream>>* resume)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Assigns each parameter to the lane that has begun it, or else to the asking lane.
  void DivideLocked(const LeasedChunks& message, size_t asking,
                    std::vector<std::shared_ptr<PushStream>>* resume)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AreLanesDoneLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OpenLanes() ABSL_LOCKS_EXCLUDED(mu_);
  void Open(size_t lane, const v1::PushOpen& open) ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<std::shared_ptr<PushStream>> StreamsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::vector<std::shared_ptr<ShardChannel>> channels_;
  const uint64_t least_lane_bytes_;
  const v1::PushOpen open_;
  // Next is called under the lock.
  const std::shared_ptr<PushSource> source_;

  Mutex mu_;
  std::vector<Lane> lanes_ ABSL_GUARDED_BY(mu_);
  std::map<ContributionKey, size_t> lane_of_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // Value of PushOpened.push.
  uint64_t push_ ABSL_GUARDED_BY(mu_) = 0;
  bool lanes_started_ ABSL_GUARDED_BY(mu_) = false;
  // The source has returned its last message, `finish_`. The first lane sends it when the other
  // open lanes are done.
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<v1::PushFinish> finish_ ABSL_GUARDED_BY(mu_);
  // Error of the lane that ended the push.
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_LANED_PUSH_H_
