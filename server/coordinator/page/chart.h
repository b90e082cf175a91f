// Line charts as inline SVG, without scripts. Pure functions; any thread.
#ifndef KAON_SERVER_COORDINATOR_PAGE_CHART_H_
#define KAON_SERVER_COORDINATOR_PAGE_CHART_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kaon::coordinator {

struct Series {
  std::string name;
  // Step and value, steps ascending. Values that are not finite are left out.
  std::vector<std::pair<double, double>> points;
};

struct Chart {
  std::string title;
  // Explains what the chart shows.
  std::string help;
  std::vector<Series> series;
  // Steps to mark below the curves; only the first 200 are.
  std::vector<double> marks;
  std::string marks_name;
};

// Returns a figure: the curves, and a legend with the newest value of each. The vertical axis is
// logarithmic if the values span a factor of 50. Curves with many points are drawn by the least and
// the largest value of each part, so that a spike stays. A chart is at most about 16 KB.
std::string LineChart(Chart chart);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_PAGE_CHART_H_
