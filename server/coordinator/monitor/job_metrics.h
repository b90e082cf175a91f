// The metrics of a coordinator and its job. Pure functions; any thread.
#ifndef KAON_SERVER_COORDINATOR_MONITOR_JOB_METRICS_H_
#define KAON_SERVER_COORDINATOR_MONITOR_JOB_METRICS_H_

#include "server/coordinator/machine/step_machine.h"
#include "server/coordinator/monitor/job_meter.h"
#include "server/monitor/metrics/metric_page.h"

namespace kaon::coordinator {

// Sets what the coordinator's machine knows: shards, workers and the state of the job.
// `workers_heard` is the number of WorkerPresence.
void SetCoordinator(const CoordinatorSnapshot& snapshot, int workers_heard,
                    metrics::MetricPage& page);
// Sets what was decided. Values of the newest step are left out on a standby.
void SetDecided(const JobNumbers& numbers, bool holder, metrics::MetricPage& page);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MONITOR_JOB_METRICS_H_
