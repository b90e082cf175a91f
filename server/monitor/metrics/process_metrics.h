// Metrics that every server has: its build, its process, its events, health and certificates.
// Reads /proc and files; any thread.
#ifndef KAON_SERVER_MONITOR_METRICS_PROCESS_METRICS_H_
#define KAON_SERVER_MONITOR_METRICS_PROCESS_METRICS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/config.pb.h"
#include "server/monitor/event_counts.h"
#include "server/monitor/metrics/metric_page.h"
#include "server/monitor/service_health.h"

namespace kaon::metrics {

// Returns when the first certificate of a PEM file ends to be valid. FAILED_PRECONDITION if the
// file has none.
absl::StatusOr<absl::Time> CertificateExpiry(const std::string& path);

// Sets the metrics of the server `kBoth`, except kaon_values_age_seconds. A value that the machine
// does not tell is left out.
void AddProcess(const v1::TlsConfig& tls, const monitor::EventCounts& counts,
                const monitor::ServiceHealth& health, MetricPage& page);

}  // namespace kaon::metrics

#endif  // KAON_SERVER_MONITOR_METRICS_PROCESS_METRICS_H_
