#include "server/coordinator/page/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Chart ChartOf(std::vector<std::pair<double, double>> points) {
  Chart chart;
  chart.title = "Loss <1>";
  chart.series.push_back({"a&b", std::move(points)});
  return chart;
}

TEST(ChartTest, SaysWhatItShows) {
  const std::string html = LineChart(ChartOf({{1, 2.5}, {2, 1.5}, {3, 1}}));
  EXPECT_THAT(html, HasSubstr("role=\"img\" aria-label=\"Loss &lt;1&gt;, steps 1 to 3, values 1 to "
                              "2.5\""));
  EXPECT_THAT(html, HasSubstr("data-first=\"1\" data-last=\"3\""));
  EXPECT_THAT(html, HasSubstr("a&amp;b <b>1</b>"));
  EXPECT_THAT(html, Not(HasSubstr("<1>")));
}

TEST(ChartTest, PutsTheEndsAtTheEdges) {
  const std::string html = LineChart(ChartOf({{1, 0}, {2, 1}}));
  EXPECT_THAT(html, HasSubstr("points=\"62.0,180.0 628.0,"));
}

TEST(ChartTest, IsLogarithmicOverAWideRange) {
  EXPECT_THAT(LineChart(ChartOf({{1, 1}, {2, 1000}})), HasSubstr(">100</text>"));
  EXPECT_THAT(LineChart(ChartOf({{1, 1}, {2, 10}})), Not(HasSubstr(">100</text>")));
}

TEST(ChartTest, LeavesOutWhatCannotBeDrawn) {
  EXPECT_THAT(LineChart(ChartOf({})), HasSubstr("No values yet."));
  EXPECT_THAT(LineChart(ChartOf({{1, NAN}, {2, INFINITY}, {3, -1.7e308}})),
              HasSubstr("No values yet."));
  const std::string html = LineChart(ChartOf({{1, NAN}, {2, 3}}));
  EXPECT_THAT(html, HasSubstr("<circle"));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(ChartTest, StaysSmallAndKeepsASpike) {
  std::vector<std::pair<double, double>> points;
  for (int step = 1; step <= 20000; ++step) points.emplace_back(step, step == 12345 ? 40 : 1);
  Chart chart = ChartOf(std::move(points));
  for (int i = 0; i < 1000; ++i) chart.marks.push_back(i);
  const std::string html = LineChart(chart);
  EXPECT_LT(html.size(), 24u << 10);
  // The spike, at the top.
  EXPECT_THAT(html, HasSubstr(",19.4 "));
}

TEST(ChartTest, DrawsAConstant) {
  EXPECT_THAT(LineChart(ChartOf({{1, 0}, {2, 0}})), HasSubstr("<polyline"));
  EXPECT_THAT(LineChart(ChartOf({{1, 3}, {2, 3}})), Not(HasSubstr("inf")));
}

TEST(ChartTest, DrawsValuesThatDifferByTheLeastPossible) {
  for (const double value : {2.5, -2.5, 1e290, 5e-324}) {
    const double next = std::nextafter(value, INFINITY);
    const std::string html = LineChart(ChartOf({{1, value}, {2, next}}));
    EXPECT_LT(html.size(), 4u << 10) << value;
    EXPECT_THAT(html, HasSubstr("<polyline")) << value;
  }
}

}  // namespace
}  // namespace kaon::coordinator
