// Serves the metrics of a shard by HTTP. A sampler asks the step thread once a second and publishes
// the answer; a scrape reads the newest answer and never waits for that thread. Owned by
// ShardServer.
#ifndef KAON_SERVER_SHARD_MONITOR_SHARD_MONITOR_H_
#define KAON_SERVER_SHARD_MONITOR_SHARD_MONITOR_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kaon/v1/config.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/mutex.h"
#include "server/monitor/event_counts.h"
#include "server/monitor/metrics/http_server.h"
#include "server/monitor/metrics/published.h"
#include "server/monitor/metrics/sampler.h"
#include "server/monitor/service_health.h"
#include "server/shard/monitor/shard_metrics.h"
#include "server/shard/step_loop.h"

namespace kaon::shard {

class ShardMonitor {
 public:
  // Serves at metrics_address of `config`, which must not be empty. `health` and `counts` outlive
  // the monitor; `loop` lives until Stop. FAILED_PRECONDITION if the address or a file cannot be
  // used; UNAVAILABLE if metrics_port_file cannot be written.
  static absl::StatusOr<std::unique_ptr<ShardMonitor>> Start(const v1::ShardConfig& config,
                                                             StepLoop& loop,
                                                             const monitor::EventCounts& counts,
                                                             const monitor::ServiceHealth& health);
  ~ShardMonitor();

  int port() const { return http_->port(); }
  // Call it after the loop has stopped. Idempotent.
  void Stop();

 private:
  ShardMonitor(const v1::ShardConfig& config, StepLoop& loop, const monitor::EventCounts& counts,
               const monitor::ServiceHealth& health);

  void Sample();
  // Both run on the step thread.
  void OnDescribed(v1::DescribeShardResponse shard);
  void OnPhases(const v1::ReadHistoryResponse& history);
  std::string Page() const;

  const v1::ShardConfig config_;
  StepLoop& loop_;
  const monitor::EventCounts& counts_;
  const monitor::ServiceHealth& health_;
  metrics::Published<v1::DescribeShardResponse> shard_;
  metrics::Published<DiskSpace> disk_;
  metrics::Published<std::optional<double>> orthogonality_;
  // True while an answer of the step thread is awaited: at most one question waits in its queue.
  std::atomic<bool> asked_{false};
  mutable Mutex mu_;
  PhaseSums phases_ ABSL_GUARDED_BY(mu_);

  std::unique_ptr<metrics::HttpServer> http_;
  std::optional<metrics::Sampler> sampler_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_MONITOR_SHARD_MONITOR_H_
