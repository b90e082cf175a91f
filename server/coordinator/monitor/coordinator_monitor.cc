#include "server/coordinator/monitor/coordinator_monitor.h"

#include <glog/logging.h>

#include <utility>

#include "proto/status_macros.h"
#include "server/config/port_file.h"
#include "server/coordinator/monitor/job_metrics.h"
#include "server/monitor/metrics/http_settings.h"
#include "server/monitor/metrics/metric_page.h"
#include "server/monitor/metrics/process_metrics.h"

namespace kaon::coordinator {

absl::StatusOr<std::unique_ptr<CoordinatorMonitor>> CoordinatorMonitor::Start(
    const v1::CoordinatorConfig& config, const Sources& sources) {
  std::unique_ptr<CoordinatorMonitor> started(new CoordinatorMonitor(config, sources));
  KAON_ASSIGN_OR_RETURN(metrics::HttpOptions options,
                        metrics::HttpOptionsOf(metrics::HttpSettingsOf(config)));
  metrics::HttpRoute route;
  route.path = "/metrics";
  route.always_needs_token = false;
  route.answer = [monitor = started.get()](const metrics::HttpRequest&) {
    metrics::HttpResponse response;
    response.content_type = metrics::MetricPage::kContentType;
    response.body = monitor->Page();
    return response;
  };
  options.routes.push_back(std::move(route));
  KAON_ASSIGN_OR_RETURN(started->http_, metrics::HttpServer::Start(std::move(options)));
  started->sampler_.emplace([monitor = started.get()] { monitor->Sample(); });
  LOG(INFO) << "metrics are served on port " << started->port();
  if (!config.metrics_port_file().empty()) {
    KAON_RETURN_IF_ERROR(config::WritePortFile(config.metrics_port_file(), started->port()));
  }
  return started;
}

CoordinatorMonitor::~CoordinatorMonitor() { Stop(); }

void CoordinatorMonitor::Stop() {
  if (sampler_) sampler_->Stop();
  if (http_ != nullptr) http_->Stop();
}

void CoordinatorMonitor::Sample() {
  http_->RereadCertificates();
  if (asked_.exchange(true)) return;
  const absl::Status posted = sources_.loop.Post([this](StepMachine& machine, absl::Time) {
    snapshot_.Set(machine.Snapshot());
    asked_ = false;
  });
  if (!posted.ok()) asked_ = false;
}

std::string CoordinatorMonitor::Page() const {
  metrics::MetricPage page;
  const auto snapshot = snapshot_.Get();
  if (snapshot != nullptr) {
    SetCoordinator(*snapshot, page);
    page.Set("kaon_values_age_seconds", absl::ToDoubleSeconds(snapshot_.Age()));
  }
  SetDecided(sources_.meter.Read(), snapshot != nullptr && snapshot->holder, page);
  metrics::AddProcess(config_.tls(), sources_.counts, sources_.health, page);
  return page.Text();
}

}  // namespace kaon::coordinator
