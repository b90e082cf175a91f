// The route of a server's metrics. A pure function; any thread.
#ifndef KAON_SERVER_MONITOR_METRICS_METRICS_ROUTE_H_
#define KAON_SERVER_MONITOR_METRICS_METRICS_ROUTE_H_

#include <functional>
#include <string>
#include <utility>

#include "server/monitor/metrics/http_server.h"
#include "server/monitor/metrics/metric_page.h"

namespace kaon::metrics {

// Returns the route /metrics, which needs no token on loopback. `page` returns MetricPage::Text;
// the server's threads call it.
inline HttpRoute MetricsRoute(std::function<std::string()> page) {
  HttpRoute route;
  route.path = "/metrics";
  route.always_needs_token = false;
  route.answer = [page = std::move(page)](const HttpRequest&) {
    HttpResponse response;
    response.content_type = MetricPage::kContentType;
    response.body = page();
    return response;
  };
  return route;
}

}  // namespace kaon::metrics

#endif  // KAON_SERVER_MONITOR_METRICS_METRICS_ROUTE_H_
