// One page of metrics in Prometheus' text format. Only metrics of metric_list.h can be set. One
// thread.
#ifndef KAON_SERVER_MONITOR_METRICS_METRIC_PAGE_H_
#define KAON_SERVER_MONITOR_METRICS_METRIC_PAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "prometheus/metric_family.h"

namespace kaon::metrics {

// Counts values in buckets of seconds. Copyable; its owner guards it.
class SecondsHistogram {
 public:
  SecondsHistogram();
  void Add(double seconds);

 private:
  friend class MetricPage;
  // One count a bound, then one for what exceeds the last bound.
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  double sum_ = 0;
};

class MetricPage {
 public:
  MetricPage();

  // Sets a counter or a gauge. `values` are those of the metric's labels, in their order. An
  // unknown name, and a wrong number of values, end the process.
  void Set(absl::string_view name, double value, std::vector<std::string> values = {});
  void Set(absl::string_view name, const SecondsHistogram& histogram);

  // Returns the page. A metric without a value is left out.
  std::string Text() const;

  // Content-Type of Text().
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

 private:
  prometheus::ClientMetric& Add(absl::string_view name, std::vector<std::string> values);

  // Ordered as the list.
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace kaon::metrics

#endif  // KAON_SERVER_MONITOR_METRICS_METRIC_PAGE_H_
