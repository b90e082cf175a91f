// Names, labels and help texts of all metrics that Kaon's servers serve. docs/metrics.md is made
// from this list. Constant; any thread.
#ifndef KAON_SERVER_MONITOR_METRICS_METRIC_LIST_H_
#define KAON_SERVER_MONITOR_METRICS_METRIC_LIST_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kaon::metrics {

enum class MetricKind { kCounter, kGauge, kHistogram };
enum class MetricOf { kShard, kCoordinator, kBoth };

struct Metric {
  absl::string_view name;
  MetricKind kind;
  MetricOf of;
  // Names of the labels, with commas between them. No label has a value that users choose, except
  // names of groups, of which kMaxGroups are served.
  absl::string_view labels;
  absl::string_view help;
};

// Upper bound on the groups of a job that have values of their own.
inline constexpr int kMaxGroups = 64;

// Returns the metrics in the order in which a page has them.
absl::Span<const Metric> MetricList();
// Returns null for a name that is not in the list.
const Metric* FindMetric(absl::string_view name);
// Returns the content of docs/metrics.md between its introduction and its end.
std::string MetricTable();

}  // namespace kaon::metrics

#endif  // KAON_SERVER_MONITOR_METRICS_METRIC_LIST_H_
