#include "server/shard/monitor/shard_monitor.h"

#include <glog/logging.h>

#include <utility>

#include "proto/status_macros.h"
#include "server/config/port_file.h"
#include "server/monitor/metrics/http_settings.h"
#include "server/monitor/metrics/metric_page.h"
#include "server/monitor/metrics/metrics_route.h"
#include "server/monitor/metrics/process_metrics.h"

namespace kaon::shard {

absl::StatusOr<std::unique_ptr<ShardMonitor>> ShardMonitor::Start(
    const v1::ShardConfig& config, StepLoop& loop, const monitor::EventCounts& counts,
    const monitor::ServiceHealth& health) {
  std::unique_ptr<ShardMonitor> started(new ShardMonitor(config, loop, counts, health));
  KAON_ASSIGN_OR_RETURN(metrics::HttpOptions options,
                        metrics::HttpOptionsOf(metrics::HttpSettingsOf(config)));
  options.routes.push_back(
      metrics::MetricsRoute([monitor = started.get()] { return monitor->Page(); }));
  KAON_ASSIGN_OR_RETURN(started->http_, metrics::HttpServer::Start(std::move(options)));
  LOG(INFO) << "metrics are served on port " << started->port();
  if (!config.metrics_port_file().empty()) {
    KAON_RETURN_IF_ERROR(config::WritePortFile(config.metrics_port_file(), started->port()));
  }
  // Last: once it has asked the step thread, the monitor has to outlive the loop.
  started->sampler_.emplace([monitor = started.get()] { monitor->Sample(); });
  return started;
}

ShardMonitor::ShardMonitor(const v1::ShardConfig& config, StepLoop& loop,
                           const monitor::EventCounts& counts, const monitor::ServiceHealth& health)
    : config_(config), loop_(loop), counts_(counts), health_(health) {}

ShardMonitor::~ShardMonitor() { Stop(); }

void ShardMonitor::Stop() {
  if (sampler_) sampler_->Stop();
  if (http_ != nullptr) http_->Stop();
}

void ShardMonitor::Sample() {
  http_->RereadCertificates();
  // Here, since a disk that hangs must not keep a scrape waiting.
  disk_.Set(ReadDisk(config_.data_dir()));
  if (asked_.exchange(true)) return;
  loop_.Describe("", [this](absl::StatusOr<v1::DescribeShardResponse> shard) {
    if (shard.ok()) OnDescribed(*std::move(shard));
  });
  loop_.OrthogonalityError([this](std::optional<double> error) { orthogonality_.Set(error); });
  v1::ReadHistoryRequest read;
  {
    MutexLock lock(mu_);
    read.set_from_position(phases_.next_position());
  }
  // The records are of no use here.
  read.set_limit(1);
  read.set_with_phases(true);
  loop_.ReadHistory(read, [this](const absl::StatusOr<v1::ReadHistoryResponse>& history) {
    if (history.ok()) OnPhases(*history);
    asked_ = false;
  });
}

void ShardMonitor::OnDescribed(v1::DescribeShardResponse shard) {
  // The page has no use for them, and they are large.
  shard.mutable_state()->clear_registration();
  shard.mutable_state()->clear_applied_record();
  shard.mutable_state()->clear_prepared();
  shard_.Set(std::move(shard));
}

void ShardMonitor::OnPhases(const v1::ReadHistoryResponse& history) {
  MutexLock lock(mu_);
  phases_.Add(history.phases());
}

std::string ShardMonitor::Page() const {
  metrics::MetricPage page;
  if (const auto shard = shard_.Get(); shard != nullptr) {
    SetShard(*shard, page);
    page.Set("kaon_values_age_seconds", absl::ToDoubleSeconds(shard_.Age()));
  }
  {
    MutexLock lock(mu_);
    phases_.Set(page);
  }
  if (const auto disk = disk_.Get(); disk != nullptr) SetDisk(*disk, page);
  if (const auto error = orthogonality_.Get(); error != nullptr && error->has_value()) {
    page.Set("kaon_shard_orthogonality_error", **error);
  }
  page.Set("kaon_shard_pushed_bytes_total",
           static_cast<double>(counts_.bytes(monitor::Transfer::kPushed)));
  page.Set("kaon_shard_pulled_bytes_total",
           static_cast<double>(counts_.bytes(monitor::Transfer::kPulled)));
  metrics::AddProcess(config_.tls(), counts_, health_, page);
  return page.Text();
}

}  // namespace kaon::shard
