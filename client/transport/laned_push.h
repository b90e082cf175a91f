// One push over several connections to a shard: chunks are divided among lanes, each parameter's on
// one of them; the first lane opens and finishes it and has its credit (PushOpen.lane_of). Made by
// LanedShardChannel, shared with its streams until they are done; any thread.
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
  // Other lanes are opened once more than `least_lane_bytes` are to be sent and the shard takes
  // lanes. An error of one of them ends the push.
  LanedPush(std::vector<std::shared_ptr<ShardChannel>> channels, uint64_t least_lane_bytes,
            const v1::PushOpen& open, std::shared_ptr<PushSource> source);
  // Once.
  void Start();

  void Resume() override;
  void Cancel() override;

 private:
  class LaneSource;

  struct Lane {
    std::shared_ptr<PushStream> stream;
    // What it is to send next. Views of the caller's memory and their leases.
    std::deque<LeasedChunks> chunks;
    bool opened = false;
    bool finish_sent = false;
    bool done = false;
  };

  // Of lane `lane`, as PushSource.
  absl::Status OnOpened(size_t lane, const v1::PushOpened& opened) ABSL_LOCKS_EXCLUDED(mu_);
  PushMessage Next(size_t lane) ABSL_LOCKS_EXCLUDED(mu_);
  void OnLaneDone(size_t lane, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  // `resume` are streams that have something to send now.
  PushMessage TakeLocked(size_t lane, std::vector<std::shared_ptr<PushStream>>* resume)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Each parameter goes to the lane that has begun it, else to the one that asks.
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
  // PushOpened.push.
  uint64_t push_ ABSL_GUARDED_BY(mu_) = 0;
  bool lanes_started_ ABSL_GUARDED_BY(mu_) = false;
  // The source has said its last message, `finish_`, which is sent once the lanes that were opened
  // are done.
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<v1::PushFinish> finish_ ABSL_GUARDED_BY(mu_);
  // Why a lane ended the push.
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_LANED_PUSH_H_
