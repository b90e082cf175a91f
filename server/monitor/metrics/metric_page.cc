#include "server/monitor/metrics/metric_page.h"

#include <glog/logging.h>

#include <limits>
#include <utility>

#include "absl/strings/str_split.h"
#include "prometheus/text_serializer.h"
#include "server/monitor/metrics/metric_list.h"

namespace kaon::metrics {

namespace {

constexpr double kBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                              0.5,   1,      2.5,   5,    10,    30,   60,  300};

prometheus::MetricType TypeOf(MetricKind kind) {
  if (kind == MetricKind::kCounter) return prometheus::MetricType::Counter;
  return kind == MetricKind::kGauge ? prometheus::MetricType::Gauge
                                    : prometheus::MetricType::Histogram;
}

}  // namespace

SecondsHistogram::SecondsHistogram() : counts_(std::size(kBounds) + 1) {}

void SecondsHistogram::Add(double seconds) {
  size_t bucket = 0;
  while (bucket < std::size(kBounds) && seconds > kBounds[bucket]) ++bucket;
  ++counts_[bucket];
  ++count_;
  sum_ += seconds;
}

MetricPage::MetricPage() {
  for (const Metric& metric : MetricList()) {
    prometheus::MetricFamily& family = families_.emplace_back();
    family.name = std::string(metric.name);
    family.help = std::string(metric.help);
    family.type = TypeOf(metric.kind);
  }
}

prometheus::ClientMetric& MetricPage::Add(absl::string_view name, std::vector<std::string> values) {
  const Metric* const metric = FindMetric(name);
  CHECK(metric != nullptr) << name << " is not in the list of metrics";
  const std::vector<std::string> labels = absl::StrSplit(metric->labels, ',', absl::SkipEmpty());
  CHECK_EQ(labels.size(), values.size()) << "labels of " << name;
  prometheus::ClientMetric& added = families_[metric - MetricList().data()].metric.emplace_back();
  for (size_t i = 0; i < labels.size(); ++i) {
    added.label.push_back({labels[i], std::move(values[i])});
  }
  return added;
}

void MetricPage::Set(absl::string_view name, double value, std::vector<std::string> values) {
  prometheus::ClientMetric& metric = Add(name, std::move(values));
  // The serializer takes the one of the family's type.
  metric.counter.value = value;
  metric.gauge.value = value;
}

void MetricPage::Set(absl::string_view name, const SecondsHistogram& histogram) {
  prometheus::ClientMetric& metric = Add(name, {});
  metric.histogram.sample_count = histogram.count_;
  metric.histogram.sample_sum = histogram.sum_;
  uint64_t below = 0;
  for (size_t i = 0; i < histogram.counts_.size(); ++i) {
    below += histogram.counts_[i];
    const double bound =
        i < std::size(kBounds) ? kBounds[i] : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({below, bound});
  }
}

std::string MetricPage::Text() const {
  std::vector<prometheus::MetricFamily> set;
  for (const prometheus::MetricFamily& family : families_) {
    if (!family.metric.empty()) set.push_back(family);
  }
  return prometheus::TextSerializer().Serialize(set);
}

}  // namespace kaon::metrics
