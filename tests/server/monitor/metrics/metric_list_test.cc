#include "server/monitor/metrics/metric_list.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "prometheus/check_names.h"

namespace kaon::metrics {
namespace {

TEST(MetricListTest, HasGoodNames) {
  std::set<std::string> seen;
  for (const Metric& metric : MetricList()) {
    const std::string name(metric.name);
    EXPECT_TRUE(seen.insert(name).second) << name;
    EXPECT_TRUE(prometheus::CheckMetricName(name)) << name;
    EXPECT_TRUE(absl::StartsWith(name, "kaon_") || absl::StartsWith(name, "process_")) << name;
    EXPECT_EQ(absl::EndsWith(name, "_total"), metric.kind == MetricKind::kCounter) << name;
    EXPECT_FALSE(metric.help.empty()) << name;
    EXPECT_EQ(FindMetric(name), &metric);
    for (const absl::string_view label : absl::StrSplit(metric.labels, ',', absl::SkipEmpty())) {
      // Names of parameters are unbounded.
      EXPECT_NE(label, "parameter") << name;
    }
  }
  EXPECT_EQ(FindMetric("kaon_nothing"), nullptr);
}

TEST(MetricListTest, IsThePageOfTheDocuments) {
  std::ifstream file("docs/metrics.md");
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_TRUE(absl::StrContains(page.str(), MetricTable()))
      << "docs/metrics.md is not up to date; replace its table with this one:\n"
      << MetricTable();
}

}  // namespace
}  // namespace kaon::metrics
