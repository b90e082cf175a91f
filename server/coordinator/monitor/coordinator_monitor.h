// Serves the metrics of a coordinator and its status page by HTTP. A sampler asks the machine's
// thread once a second and publishes the answer; a scrape reads the newest answer and never waits
// for that thread. Owned by CoordinatorServer.
#ifndef KAON_SERVER_COORDINATOR_MONITOR_COORDINATOR_MONITOR_H_
#define KAON_SERVER_COORDINATOR_MONITOR_COORDINATOR_MONITOR_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kaon/v1/config.pb.h"
#include "server/coordinator/machine_loop.h"
#include "server/coordinator/monitor/job_meter.h"
#include "server/coordinator/monitor/worker_presence.h"
#include "server/coordinator/page/status_page.h"
#include "server/coordinator/service/cluster_queries.h"
#include "server/monitor/event_counts.h"
#include "server/monitor/metrics/http_server.h"
#include "server/monitor/metrics/published.h"
#include "server/monitor/metrics/sampler.h"
#include "server/monitor/service_health.h"

namespace kaon::coordinator {

class CoordinatorMonitor {
 public:
  // All that the monitor reads. Everything outlives it.
  struct Sources {
    MachineLoop& loop;
    const JobMeter& meter;
    const ClusterQueries& queries;
    const monitor::EventCounts& counts;
    const monitor::ServiceHealth& health;
  };

  // Serves at metrics_address of `config`, which must not be empty. Prints the link of the status
  // page on the standard output, with a random token unless metrics_token_file has one.
  // FAILED_PRECONDITION if the address or a file cannot be used; UNAVAILABLE if metrics_port_file
  // cannot be written.
  static absl::StatusOr<std::unique_ptr<CoordinatorMonitor>> Start(
      const v1::CoordinatorConfig& config, const Sources& sources);
  ~CoordinatorMonitor();

  int port() const { return http_->port(); }
  // Call it after the loop has stopped. Idempotent.
  void Stop();

 private:
  CoordinatorMonitor(const v1::CoordinatorConfig& config, const Sources& sources)
      : config_(config), sources_(sources), status_page_(sources.queries) {}

  void Sample();
  std::string Page() const;

  const v1::CoordinatorConfig config_;
  const Sources sources_;
  struct Seen {
    CoordinatorSnapshot machine;
    int workers_heard = 0;
  };
  metrics::Published<Seen> seen_;
  // The thread of the machine alone uses it.
  WorkerPresence presence_;
  // True while an answer of the machine's thread is awaited.
  std::atomic<bool> asked_{false};
  StatusPage status_page_;
  std::unique_ptr<metrics::HttpServer> http_;
  std::optional<metrics::Sampler> sampler_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MONITOR_COORDINATOR_MONITOR_H_
