#include "server/coordinator/page/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/coordinator/page/html.h"

namespace kaon::coordinator {

namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 210;
constexpr double kLeft = 62;
constexpr double kRight = 628;
constexpr double kTop = 10;
constexpr double kBottom = 180;
constexpr size_t kMaxMarks = 200;
// Points of all series together, and of one at least.
constexpr size_t kAllParts = 300;
constexpr size_t kLeastParts = 24;
constexpr double kLogarithmicFrom = 50;
// Values that differ by less, as a part of the larger one, are one value: doubles have no round
// values between them.
constexpr double kLeastDifference = 1e-12;
// Smaller values are drawn as 0, and larger ones not at all: arithmetic with them loses its range.
constexpr double kLeastValue = 1e-290;
constexpr double kLargestValue = 1e300;

// Maps values to the drawing.
struct Axis {
  double low = 0;
  double high = 1;
  bool is_log = false;

  double Place(double value) const {
    return is_log ? (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low))
                  : (value - low) / (high - low);
  }
  double Y(double value) const { return kBottom - (kBottom - kTop) * Place(value); }
  double X(double value) const { return kLeft + (kRight - kLeft) * Place(value); }
};

// Widens a range of one value, so that it has a length.
Axis Linear(double low, double high) {
  if (high > low) return {low, high, false};
  const double room = std::abs(low) < kLeastValue ? 1 : std::abs(low) * 0.1;
  return {low - room, high + room, false};
}

Axis VerticalAxis(double low, double high) {
  const double most = std::max(std::abs(low), std::abs(high));
  if (high - low <= std::max(kLeastDifference * most, kLeastValue)) return Linear(low, low);
  if (low > 0 && high / low >= kLogarithmicFrom) return {low * 0.9, high * 1.1, true};
  const double room = (high - low) * 0.06;
  // Room below must not make a positive number look negative.
  const double least = low >= 0 ? std::max(0.0, low - room) : low - room;
  return Linear(least, high + room);
}

// Returns about `count` round values within the axis.
std::vector<double> Ticks(const Axis& axis, int count) {
  std::vector<double> ticks;
  if (axis.is_log) {
    const int first = static_cast<int>(std::ceil(std::log10(axis.low)));
    const int last = static_cast<int>(std::floor(std::log10(axis.high)));
    const int stride = std::max(1, (last - first + count) / count);
    for (int power = first; power <= last; power += stride) ticks.push_back(std::pow(10, power));
    return ticks;
  }
  const double raw = (axis.high - axis.low) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double unit = raw / power;
  const double step = power * (unit <= 1.5 ? 1 : unit <= 3.5 ? 2 : unit <= 7.5 ? 5 : 10);
  const double first = std::ceil(axis.low / step);
  // The step is at least raw/1.75. The bound ends the loop whatever the axis is.
  for (int i = 0; i <= 2 * count; ++i) {
    const double tick = (first + i) * step;
    if (!(tick <= axis.high)) break;
    ticks.push_back(std::abs(tick) < step * 1e-6 ? 0 : tick);
  }
  return ticks;
}

// Keeps the least and the largest value of each part.
std::vector<std::pair<double, double>> Thin(const std::vector<std::pair<double, double>>& points,
                                            size_t parts) {
  if (points.size() <= 2 * parts) return points;
  std::vector<std::pair<double, double>> kept;
  const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
  for (size_t part = 0; part < parts; ++part) {
    const auto first = points.begin() + static_cast<ptrdiff_t>(points.size() * part / parts);
    const auto end = points.begin() + static_cast<ptrdiff_t>(points.size() * (part + 1) / parts);
    auto [least, most] = std::minmax_element(first, end, by_value);
    if (most < least) std::swap(least, most);
    kept.push_back(*least);
    if (most != least) kept.push_back(*most);
  }
  // The newest point is what people look for.
  if (kept.back() != points.back()) kept.push_back(points.back());
  return kept;
}

void DrawAxes(const Axis& x, const Axis& y, std::string& svg) {
  for (const double tick : Ticks(y, 5)) {
    absl::StrAppendFormat(&svg,
                          "<line class=\"grid\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/>"
                          "<text class=\"y\" x=\"%g\" y=\"%.1f\">%s</text>",
                          kLeft, kRight, y.Y(tick), y.Y(tick), kLeft - 6, y.Y(tick) + 4,
                          Number(tick));
  }
  for (const double tick : Ticks(x, 6)) {
    if (tick != std::floor(tick)) continue;
    absl::StrAppendFormat(&svg, "<text class=\"x\" x=\"%.1f\" y=\"%g\">%.0f</text>", x.X(tick),
                          kBottom + 22, tick);
  }
  absl::StrAppendFormat(&svg, "<line class=\"axis\" x1=\"%g\" x2=\"%g\" y1=\"%g\" y2=\"%g\"/>",
                        kLeft, kRight, kBottom, kBottom);
}

void DrawSeries(const std::vector<std::pair<double, double>>& points, size_t index, const Axis& x,
                const Axis& y, std::string& svg) {
  if (points.size() == 1) {
    absl::StrAppendFormat(&svg, "<circle class=\"p%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>",
                          index % 8, x.X(points[0].first), y.Y(points[0].second));
    return;
  }
  absl::StrAppend(&svg, "<polyline class=\"s", index % 8, index >= 8 ? " dashed" : "",
                  "\" points=\"");
  for (const auto& [step, value] : points) {
    absl::StrAppendFormat(&svg, "%.1f,%.1f ", x.X(step), y.Y(value));
  }
  absl::StrAppend(&svg, "\"/>");
}

void DrawMarks(const Chart& chart, const Axis& x, std::string& svg) {
  const size_t count = std::min(chart.marks.size(), kMaxMarks);
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppendFormat(&svg, "<path class=\"mark\" d=\"M%.1f %g l-4 8 h8 z\"/>",
                          x.X(chart.marks[i]), kBottom);
  }
}

std::string Legend(const Chart& chart) {
  std::string html = "<ul class=\"legend\">";
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    if (series.points.empty()) continue;
    absl::StrAppend(&html, "<li><svg viewBox=\"0 0 22 8\" aria-hidden=\"true\"><line class=\"s",
                    i % 8, i >= 8 ? " dashed" : "",
                    "\" x1=\"1\" x2=\"21\" y1=\"4\" y2=\"4\"/></svg> ", Escape(series.name), " <b>",
                    Number(series.points.back().second), "</b></li>");
  }
  if (!chart.marks.empty()) {
    absl::StrAppend(&html, "<li><svg viewBox=\"0 0 22 8\" aria-hidden=\"true\">",
                    "<path class=\"mark\" d=\"M11 0 l-4 8 h8 z\"/></svg> ",
                    Escape(chart.marks_name), " <b>", chart.marks.size(), "</b></li>");
  }
  return absl::StrCat(html, "</ul>");
}

}  // namespace

std::string LineChart(Chart chart) {
  for (Series& series : chart.series) {
    std::erase_if(series.points,
                  [](const auto& point) { return !(std::abs(point.second) <= kLargestValue); });
  }
  double first = std::numeric_limits<double>::infinity();
  double last = -first, low = first, high = -first;
  size_t drawn = 0;
  for (const Series& series : chart.series) {
    if (!series.points.empty()) ++drawn;
    for (const auto& [step, value] : series.points) {
      first = std::min(first, step);
      last = std::max(last, step);
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  std::string html = absl::StrCat("<figure><figcaption><b>", Escape(chart.title), "</b> <small>",
                                  Escape(chart.help), "</small></figcaption>");
  if (drawn == 0) return absl::StrCat(html, "<p class=\"none\">No values yet.</p></figure>\n");
  const Axis x = Linear(first, last);
  const Axis y = VerticalAxis(low, high);
  std::string svg = absl::StrFormat(
      "<svg class=\"chart\" viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s, steps %.0f to "
      "%.0f, values %s to %s\" data-first=\"%.0f\" data-last=\"%.0f\" data-left=\"%g\" "
      "data-right=\"%g\">",
      kWidth, kHeight, Escape(chart.title), first, last, Number(low), Number(high), x.low, x.high,
      kLeft / kWidth, kRight / kWidth);
  DrawAxes(x, y, svg);
  const size_t parts = std::max(kLeastParts, kAllParts / drawn);
  for (size_t i = 0; i < chart.series.size(); ++i) {
    if (!chart.series[i].points.empty()) {
      DrawSeries(Thin(chart.series[i].points, parts), i, x, y, svg);
    }
  }
  DrawMarks(chart, x, svg);
  return absl::StrCat(html, svg, "</svg>", Legend(chart), "</figure>\n");
}

}  // namespace kaon::coordinator
