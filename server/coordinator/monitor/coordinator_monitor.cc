#include "server/coordinator/monitor/coordinator_monitor.h"

#include <glog/logging.h>

#include <iostream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/transport/loopback.h"
#include "proto/status_macros.h"
#include "server/config/port_file.h"
#include "server/coordinator/monitor/job_metrics.h"
#include "server/monitor/metrics/http_settings.h"
#include "server/monitor/metrics/metric_page.h"
#include "server/monitor/metrics/metrics_route.h"
#include "server/monitor/metrics/process_metrics.h"

namespace kaon::coordinator {

namespace {

std::string RandomToken() {
  std::random_device device;
  std::string token;
  for (int i = 0; i < 6; ++i) absl::StrAppend(&token, absl::Hex(device(), absl::kZeroPad8));
  return token;
}

// Logs hold no secrets: the token of a file is not repeated, and a random one ends with the
// process.
void PrintLink(const v1::CoordinatorConfig& config, int port, const std::string& token) {
  const bool loopback = client::IsLoopback(config.metrics_address());
  const std::string host = config.metrics_address().substr(0, config.metrics_address().rfind(':'));
  const std::string& file = config.metrics_token_file();
  std::cout << "status page: " << (loopback ? "http" : "https") << "://" << host << ":" << port
            << "/?token=" << (file.empty() ? token : absl::StrCat("TOKEN with the token of ", file))
            << std::endl;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorMonitor>> CoordinatorMonitor::Start(
    const v1::CoordinatorConfig& config, const Sources& sources) {
  std::unique_ptr<CoordinatorMonitor> started(new CoordinatorMonitor(config, sources));
  KAON_ASSIGN_OR_RETURN(metrics::HttpOptions options,
                        metrics::HttpOptionsOf(metrics::HttpSettingsOf(config)));
  options.routes = started->status_page_.Routes();
  options.routes.push_back(
      metrics::MetricsRoute([monitor = started.get()] { return monitor->Page(); }));
  if (options.token.empty()) options.token = RandomToken();
  const std::string token = options.token;
  KAON_ASSIGN_OR_RETURN(started->http_, metrics::HttpServer::Start(std::move(options)));
  LOG(INFO) << "metrics and the status page are served on port " << started->port();
  PrintLink(config, started->port(), token);
  if (!config.metrics_port_file().empty()) {
    KAON_RETURN_IF_ERROR(config::WritePortFile(config.metrics_port_file(), started->port()));
  }
  // Last: once it has asked the machine's thread, the monitor has to outlive the loop.
  started->sampler_.emplace([monitor = started.get()] { monitor->Sample(); });
  return started;
}

CoordinatorMonitor::~CoordinatorMonitor() { Stop(); }

void CoordinatorMonitor::Stop() {
  if (sampler_) sampler_->Stop();
  if (http_ != nullptr) http_->Stop();
}

void CoordinatorMonitor::Sample() {
  http_->RereadCertificates();
  status_page_.Tick();
  if (asked_.exchange(true)) return;
  const absl::Status posted = sources_.loop.Post([this](StepMachine& machine, absl::Time now) {
    CoordinatorSnapshot snapshot = machine.Snapshot();
    const int heard = presence_.Note(snapshot.workers, now);
    seen_.Set({std::move(snapshot), heard});
    asked_ = false;
  });
  if (!posted.ok()) asked_ = false;
}

std::string CoordinatorMonitor::Page() const {
  metrics::MetricPage page;
  const auto seen = seen_.Get();
  if (seen != nullptr) {
    SetCoordinator(seen->machine, seen->workers_heard, page);
    page.Set("kaon_values_age_seconds", absl::ToDoubleSeconds(seen_.Age()));
  }
  SetDecided(sources_.meter.Read(), seen != nullptr && seen->machine.holder, page);
  metrics::AddProcess(config_.tls(), sources_.counts, sources_.health, page);
  return page.Text();
}

}  // namespace kaon::coordinator
