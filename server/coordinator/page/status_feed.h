// Collects what the status page shows, once a second while somebody looks at it. Nothing is asked
// of the shards while nobody does. Owned by CoordinatorMonitor; any thread.
#ifndef KAON_SERVER_COORDINATOR_PAGE_STATUS_FEED_H_
#define KAON_SERVER_COORDINATOR_PAGE_STATUS_FEED_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kaon/v1/admin.pb.h"
#include "kernels/mutex.h"
#include "server/coordinator/page/sections.h"
#include "server/coordinator/page/step_curves.h"
#include "server/coordinator/service/cluster_queries.h"
#include "server/monitor/metrics/published.h"

namespace kaon::coordinator {

// Answers of the shards may come late: they own the feed.
class StatusFeed : public std::enable_shared_from_this<StatusFeed> {
 public:
  // `queries` outlives every answer that it owes.
  static std::shared_ptr<StatusFeed> Make(const ClusterQueries& queries) {
    return std::shared_ptr<StatusFeed>(new StatusFeed(queries));
  }

  // Asks for new values, if somebody looks and the last ones have come. Called by the sampler.
  void Tick();
  // Tells that somebody looks.
  void Touch();

  // Returns null before the first values.
  std::shared_ptr<const PageFacts> Get() const { return data_.Get(); }
  // Waits for newer values than those of `version`: Published::AwaitNext.
  bool AwaitNext(uint64_t* version, absl::Time deadline) const {
    return data_.AwaitNext(version, deadline);
  }
  absl::Duration Age() const { return data_.Age(); }
  const StepCurves& curves() const { return curves_; }

 private:
  explicit StatusFeed(const ClusterQueries& queries) : queries_(queries) {}

  // Each goes on with the next, and the last one publishes `data`.
  void AskStatus();
  void AskNewest(std::shared_ptr<PageFacts> data);
  void AskRecords(std::shared_ptr<PageFacts> data, int more);
  void Publish(const std::shared_ptr<PageFacts>& data);

  // Apart from the rest: the thread that reads the list may be busy with a checkpoint for minutes.
  void AskCheckpoints();

  // Asks for the update/weight ratio of one parameter a group, the smallest one.
  void AskRatios();
  void AskRatio(const std::string& job, const std::string& group, const std::string& parameter,
                uint64_t step);

  const ClusterQueries& queries_;
  StepCurves curves_;
  metrics::Published<PageFacts> data_;
  std::atomic<bool> asked_{false};
  struct CheckpointFacts {
    v1::ListCheckpointsResponse list;
    absl::Status problem;
    int64_t unix_millis = 0;
  };
  metrics::Published<CheckpointFacts> checkpoints_;
  std::atomic<bool> checkpoints_asked_{false};

  mutable Mutex mu_;
  absl::Time touched_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time ratios_asked_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::string job_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_PAGE_STATUS_FEED_H_
