#include "server/coordinator/monitor/job_metrics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/monitor/metrics/metric_list.h"

namespace kaon::coordinator {

namespace {

constexpr size_t kLeastWorkersToCompare = 3;

void SetWorkers(const CoordinatorSnapshot& snapshot, int heard, metrics::MetricPage& page) {
  std::vector<double> norms;
  int begun = 0;
  for (const WorkerSnapshot& worker : snapshot.workers) {
    if (worker.begun_step.has_value()) ++begun;
    if (worker.grad_norm && std::isfinite(*worker.grad_norm)) norms.push_back(*worker.grad_norm);
  }
  page.Set("kaon_job_workers_expected", snapshot.job->definition().world_size());
  page.Set("kaon_job_workers_joined", static_cast<double>(snapshot.workers.size()));
  page.Set("kaon_job_workers_heard", heard);
  page.Set("kaon_job_workers_begun", begun);
  if (norms.size() < kLeastWorkersToCompare) return;
  std::sort(norms.begin(), norms.end());
  const double median = norms[norms.size() / 2];
  if (median > 0) page.Set("kaon_job_worker_grad_norm_ratio", norms.back() / median);
}

// Returns whether a group with this index has values of its own.
bool IsServed(int group) { return group < metrics::kMaxGroups; }

}  // namespace

void SetCoordinator(const CoordinatorSnapshot& snapshot, int workers_heard,
                    metrics::MetricPage& page) {
  page.Set("kaon_coordinator_holder", snapshot.holder);
  const bool has_job = snapshot.holder && snapshot.job.has_value();
  const bool stopped = has_job && !snapshot.job->stopped_reason().empty();
  page.Set("kaon_job_running", has_job && !stopped);
  page.Set("kaon_job_stopped", stopped);
  if (!snapshot.holder) return;
  for (size_t i = 0; i < snapshot.shard_problems.size(); ++i) {
    page.Set("kaon_coordinator_shard_up", snapshot.shard_problems[i].empty(), {absl::StrCat(i)});
  }
  if (!has_job) return;
  page.Set("kaon_job_applied_step", static_cast<double>(snapshot.job->applied_step()));
  SetWorkers(snapshot, workers_heard, page);
}

void SetDecided(const JobNumbers& numbers, bool holder, metrics::MetricPage& page) {
  page.Set("kaon_job_steps_total", static_cast<double>(numbers.applied), {"applied"});
  page.Set("kaon_job_steps_total", static_cast<double>(numbers.skipped), {"skipped"});
  page.Set("kaon_job_step_seconds", numbers.step_seconds);
  if (numbers.decided_unix_millis > 0) {
    page.Set("kaon_job_last_decision_timestamp_seconds",
             static_cast<double>(numbers.decided_unix_millis) / 1000);
  }
  if (!holder || numbers.newest == nullptr) return;
  const v1::StepBody& step = numbers.newest->plan().step();
  const v1::StepDecision& decision = numbers.newest->decision();
  if (decision.has_loss()) page.Set("kaon_job_loss", decision.loss());
  if (decision.has_grad_norm()) page.Set("kaon_job_grad_norm", decision.grad_norm());
  page.Set("kaon_job_loss_scale", step.loss_scale());
  for (int i = 0; i < decision.norms_size() && IsServed(i); ++i) {
    const v1::GroupNorm& group = decision.norms(i);
    if (group.has_norm()) page.Set("kaon_job_group_grad_norm", group.norm(), {group.group()});
    page.Set("kaon_job_clip_factor", group.clip_factor(), {group.group()});
  }
  for (int i = 0; i < step.rates_size() && IsServed(i); ++i) {
    page.Set("kaon_job_learning_rate", step.rates(i).learning_rate(), {step.rates(i).group()});
  }
  page.Set("kaon_job_groups_omitted", std::max(0, step.rates_size() - metrics::kMaxGroups));
}

}  // namespace kaon::coordinator
