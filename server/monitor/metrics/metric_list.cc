#include "server/monitor/metrics/metric_list.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace kaon::metrics {

namespace {

constexpr MetricKind kCounter = MetricKind::kCounter;
constexpr MetricKind kGauge = MetricKind::kGauge;
constexpr MetricKind kHistogram = MetricKind::kHistogram;
constexpr MetricOf kShard = MetricOf::kShard;
constexpr MetricOf kCoordinator = MetricOf::kCoordinator;
constexpr MetricOf kBoth = MetricOf::kBoth;

constexpr Metric kMetrics[] = {
    // The job, as its coordinator decides it.
    {"kaon_job_running", kGauge, kCoordinator, "",
     "1 if this coordinator holds a job that can go on; 0 without a job, if the job stopped, or on "
     "a standby"},
    {"kaon_job_stopped", kGauge, kCoordinator, "",
     "1 if this coordinator holds a job that cannot go on"},
    {"kaon_job_applied_step", kGauge, kCoordinator, "",
     "Newest decided train step of the job, skipped ones included"},
    {"kaon_job_steps_total", kCounter, kCoordinator, "outcome",
     "Train steps that this coordinator decided since it started, by outcome: applied or skipped"},
    {"kaon_job_step_seconds", kHistogram, kCoordinator, "",
     "Time between the decisions of two successive train steps"},
    {"kaon_job_last_decision_timestamp_seconds", kGauge, kCoordinator, "",
     "Unix time of the newest decision of this coordinator; absent before the first"},
    {"kaon_job_loss", kGauge, kCoordinator, "",
     "Loss of the newest train step, weighted by tokens; absent if no worker reported one"},
    {"kaon_job_loss_scale", kGauge, kCoordinator, "",
     "Factor by which the gradients of the newest train step arrived multiplied"},
    {"kaon_job_grad_norm", kGauge, kCoordinator, "",
     "Gradient norm of the newest train step over norm group main; absent if it was not computed"},
    {"kaon_job_group_grad_norm", kGauge, kCoordinator, "group",
     "Gradient norm of a parameter group in the newest train step; absent if it was not computed"},
    {"kaon_job_clip_factor", kGauge, kCoordinator, "group",
     "Factor in (0, 1] on the gradients of a group in the newest train step; 1 does not clip"},
    {"kaon_job_learning_rate", kGauge, kCoordinator, "group",
     "Learning rate of a group in the newest train step"},
    {"kaon_job_groups_omitted", kGauge, kCoordinator, "",
     "Groups of the job without values of their own, because it has more than 64"},
    {"kaon_job_workers_expected", kGauge, kCoordinator, "",
     "Workers that the job waits for: its world_size"},
    {"kaon_job_workers_joined", kGauge, kCoordinator, "",
     "Workers that joined at this coordinator, also those that have ended"},
    {"kaon_job_workers_heard", kGauge, kCoordinator, "",
     "Workers that have a call open, or called within the last minute"},
    {"kaon_job_workers_begun", kGauge, kCoordinator, "", "Workers that have begun the open step"},
    {"kaon_job_worker_grad_norm_ratio", kGauge, kCoordinator, "",
     "Largest gradient norm of a worker in the newest step, divided by the median of all workers; "
     "absent with fewer than 3"},
    // The coordinator.
    {"kaon_coordinator_holder", kGauge, kCoordinator, "",
     "1 if this coordinator holds the shards, 0 on a standby"},
    {"kaon_coordinator_shard_up", kGauge, kCoordinator, "shard",
     "1 if the shard takes part, 0 if this coordinator knows a problem of it; absent on a standby"},
    // A shard.
    {"kaon_shard_info", kGauge, kShard, "shard,backend,durability,device_class,memory_tier",
     "Always 1; its labels describe the shard"},
    {"kaon_shard_applied_step", kGauge, kShard, "",
     "Newest applied train step, skipped ones included"},
    {"kaon_shard_steps_total", kCounter, kShard, "outcome",
     "Train steps since this shard started, by outcome: applied or skipped"},
    {"kaon_shard_step_seconds", kHistogram, kShard, "",
     "Time from the acceptance of a step's plan to the end of its last phase"},
    {"kaon_shard_phase_seconds_total", kCounter, kShard, "phase",
     "Work of all threads in a phase of the step (docs/kaonctl.md lists the phases)"},
    {"kaon_shard_phase_hidden_seconds_total", kCounter, kShard, "phase",
     "Time in which the phase overlapped with another phase of the step"},
    {"kaon_shard_awaited_workers", kGauge, kShard, "",
     "Workers whose gradients the open step waits for here"},
    {"kaon_shard_pushed_bytes_total", kCounter, kShard, "",
     "Bytes of push messages received from workers"},
    {"kaon_shard_pulled_bytes_total", kCounter, kShard, "", "Bytes of weights sent to readers"},
    {"kaon_shard_parameters", kGauge, kShard, "tier", "Parameters by the tier that they live in"},
    {"kaon_shard_memory_used_bytes", kGauge, kShard, "",
     "Bytes of the tensor memory in use: weights, optimizer state, sums and workspace"},
    {"kaon_shard_memory_budget_bytes", kGauge, kShard, "", "Upper bound on that memory"},
    {"kaon_shard_state_bytes", kGauge, kShard, "",
     "Bytes of weights, optimizer state and sums of all parameters of this shard, in any tier"},
    {"kaon_shard_staging_budget_bytes", kGauge, kShard, "",
     "Bytes of gradients that may wait for an earlier rank"},
    {"kaon_shard_tier_used_bytes", kGauge, kShard, "tier", "Bytes of a tier in use"},
    {"kaon_shard_tier_budget_bytes", kGauge, kShard, "tier", "Upper bound of a tier"},
    {"kaon_shard_tier_read_bytes_total", kCounter, kShard, "tier", "Bytes read from a disk tier"},
    {"kaon_shard_tier_written_bytes_total", kCounter, kShard, "tier",
     "Bytes written to a disk tier"},
    {"kaon_shard_tier_read_seconds_total", kCounter, kShard, "tier",
     "Time with at least one read of the disk tier in progress"},
    {"kaon_shard_tier_write_seconds_total", kCounter, kShard, "tier",
     "Time with at least one write of the disk tier in progress"},
    {"kaon_shard_tier_hits_total", kCounter, kShard, "tier",
     "Uses of parameters of a disk tier that were in memory already"},
    {"kaon_shard_tier_misses_total", kCounter, kShard, "tier",
     "Uses of parameters of a disk tier that had to be read"},
    {"kaon_shard_tier_stall_seconds_total", kCounter, kShard, "tier",
     "Time that steps waited for the disk tier or for room in memory"},
    {"kaon_shard_journal_bytes", kGauge, kShard, "", "Bytes of journal and snapshots on disk"},
    {"kaon_shard_disk_free_bytes", kGauge, kShard, "",
     "Bytes that the shard may still write to the file system of data_dir"},
    {"kaon_shard_disk_size_bytes", kGauge, kShard, "", "Size of the file system of data_dir"},
    {"kaon_shard_snapshot_step", kGauge, kShard, "",
     "Train step of the newest whole snapshot; absent before the first"},
    {"kaon_shard_snapshot_bytes", kGauge, kShard, "", "Size of the newest whole snapshot"},
    {"kaon_shard_snapshot_seconds", kGauge, kShard, "",
     "Time that the newest whole snapshot took, while steps continued"},
    {"kaon_shard_snapshot_failed", kGauge, kShard, "", "1 if the last try of a snapshot failed"},
    {"kaon_shard_read_only", kGauge, kShard, "",
     "1 while the shard can make nothing durable, so that steps wait"},
    {"kaon_shard_data_loss", kGauge, kShard, "",
     "1 if the shard has lost its state and never votes again"},
    {"kaon_shard_orthogonality_error", kGauge, kShard, "",
     "Largest orthogonality error in the newest sample of each parameter, if its update is at "
     "least 1e-5 of its weight; absent if none is (docs/kaonctl.md)"},
    {"kaon_shard_recovery_seconds", kGauge, kShard, "", "Time of the recovery at the last start"},
    // Every server.
    {"kaon_build_info", kGauge, kBoth, "version,commit,build",
     "Always 1; its labels name the build"},
    {"kaon_events_total", kCounter, kBoth, "event",
     "Events since the process started (docs/kaonctl.md lists the events)"},
    {"kaon_serving", kGauge, kBoth, "", "1 if the health service says SERVING"},
    {"kaon_certificate_expiry_timestamp_seconds", kGauge, kBoth, "file",
     "Unix time at which a certificate file ends to be valid: certificate or ca"},
    {"kaon_values_age_seconds", kGauge, kBoth, "",
     "Age of the values on this page that the step thread or the coordinator's loop told; a few "
     "seconds at most if it is well"},
    {"process_resident_memory_bytes", kGauge, kBoth, "", "Resident memory of the process"},
    {"process_cpu_seconds_total", kCounter, kBoth, "", "CPU time of the process, user and system"},
    {"process_open_fds", kGauge, kBoth, "", "Open file descriptors"},
    {"process_max_fds", kGauge, kBoth, "", "Upper bound on open file descriptors"},
    {"process_start_time_seconds", kGauge, kBoth, "", "Unix time at which the process started"},
};

absl::string_view NameOf(MetricKind kind) {
  if (kind == kCounter) return "counter";
  return kind == kGauge ? "gauge" : "histogram";
}

absl::string_view NameOf(MetricOf of) {
  if (of == kShard) return "shard";
  return of == kCoordinator ? "coordinator" : "both";
}

}  // namespace

absl::Span<const Metric> MetricList() { return kMetrics; }

const Metric* FindMetric(absl::string_view name) {
  for (const Metric& metric : kMetrics) {
    if (metric.name == name) return &metric;
  }
  return nullptr;
}

std::string MetricTable() {
  std::string table = "| metric | kind | server | labels | meaning |\n|---|---|---|---|---|\n";
  for (const Metric& metric : kMetrics) {
    const std::string labels = absl::StrReplaceAll(metric.labels, {{",", "`, `"}});
    absl::StrAppend(&table, "| `", metric.name, "` | ", NameOf(metric.kind), " | ",
                    NameOf(metric.of), " | ", labels.empty() ? "" : absl::StrCat("`", labels, "`"),
                    " | ", metric.help, " |\n");
  }
  return table;
}

}  // namespace kaon::metrics
