#include "server/coordinator/page/curve_section.h"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/coordinator/page/chart.h"
#include "server/coordinator/page/html.h"

namespace kaon::coordinator {

namespace {

using Value = std::function<std::optional<double>(const StepPoint& point)>;

Series SeriesOf(const Curves& curves, std::string name, const Value& value) {
  Series series;
  series.name = std::move(name);
  for (const StepPoint& point : curves.points) {
    if (const std::optional<double> y = value(point); y.has_value()) {
      series.points.emplace_back(static_cast<double>(point.step), *y);
    }
  }
  return series;
}

// Returns one series for each group.
std::vector<Series> SeriesOfGroups(const Curves& curves, std::optional<double> GroupPoint::*value) {
  std::vector<Series> all;
  for (size_t group = 0; group < curves.groups.size(); ++group) {
    all.push_back(SeriesOf(curves, curves.groups[group], [=](const StepPoint& point) {
      return group < point.groups.size() ? point.groups[group].*value : std::nullopt;
    }));
  }
  return all;
}

Chart LossChart(const Curves& curves) {
  Chart chart;
  chart.title = "Loss";
  chart.help = "mean of all workers, weighted by tokens";
  chart.series.push_back(
      SeriesOf(curves, "loss", [](const StepPoint& point) { return point.loss; }));
  for (const StepPoint& point : curves.points) {
    if (point.skipped) chart.marks.push_back(static_cast<double>(point.step));
  }
  chart.marks_name = "skipped steps";
  return chart;
}

Chart GroupChart(const Curves& curves, std::string title, std::string help,
                 std::optional<double> GroupPoint::*value) {
  Chart chart;
  chart.title = std::move(title);
  chart.help = std::move(help);
  chart.series = SeriesOfGroups(curves, value);
  return chart;
}

Chart NormChart(const Curves& curves) {
  Chart chart =
      GroupChart(curves, "Gradient norm", "before clipping, over all shards", &GroupPoint::norm);
  if (curves.groups.size() > 1) {
    chart.series.push_back(
        SeriesOf(curves, "all", [](const StepPoint& point) { return point.grad_norm; }));
  }
  return chart;
}

Chart RatioChart(const Curves& curves) {
  Chart chart;
  chart.title = "Update / weight";
  chart.help = "of one parameter a group, every 10 s while a page is open";
  for (const RatioCurve& ratio : curves.ratios) {
    Series series;
    series.name = absl::StrCat(ratio.group, ": ", ratio.parameter);
    for (const RatioPoint& point : ratio.points) {
      series.points.emplace_back(static_cast<double>(point.step), point.ratio);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

Chart TimeChart(const Curves& curves) {
  Chart chart;
  chart.title = "Seconds per step";
  chart.help = "between decisions of this coordinator";
  Series& series = chart.series.emplace_back();
  series.name = "seconds";
  for (size_t i = 1; i < curves.points.size(); ++i) {
    const StepPoint& before = curves.points[i - 1];
    const StepPoint& point = curves.points[i];
    // Points between may have been dropped.
    const auto steps = static_cast<double>(point.step - before.step);
    if (before.unix_millis == 0 || point.unix_millis == 0 || steps <= 0) continue;
    series.points.emplace_back(
        static_cast<double>(point.step),
        static_cast<double>(point.unix_millis - before.unix_millis) / 1000 / steps);
  }
  return chart;
}

std::string Exact(std::optional<double> value) {
  return value.has_value() ? absl::StrFormat("%.9g", *value) : "";
}

}  // namespace

std::string CurvesHtml(const Curves& curves) {
  std::string html;
  html += LineChart(LossChart(curves));
  html += LineChart(NormChart(curves));
  html += LineChart(GroupChart(curves, "Clip factor", "1 does not clip", &GroupPoint::clip_factor));
  html += LineChart(GroupChart(curves, "Learning rate", "of the schedule", &GroupPoint::rate));
  html += LineChart(RatioChart(curves));
  html += LineChart(TimeChart(curves));
  return html;
}

std::string CurvesCsv(const Curves& curves) {
  std::string csv = "position,step,outcome,reason,unix_millis,loss,grad_norm,loss_scale";
  for (const std::string& group : curves.groups) {
    for (const char* const what : {"grad_norm", "clip_factor", "learning_rate"}) {
      absl::StrAppend(&csv, ",", CsvField(absl::StrCat(group, " ", what)));
    }
  }
  csv += "\r\n";
  for (const StepPoint& point : curves.points) {
    absl::StrAppend(&csv, point.position, ",", point.step, ",", point.skipped ? "skip" : "apply",
                    ",", CsvField(point.reason), ",", point.unix_millis, ",", Exact(point.loss),
                    ",", Exact(point.grad_norm), ",", Exact(point.loss_scale));
    for (size_t group = 0; group < curves.groups.size(); ++group) {
      const GroupPoint values = group < point.groups.size() ? point.groups[group] : GroupPoint();
      absl::StrAppend(&csv, ",", Exact(values.norm), ",", Exact(values.clip_factor), ",",
                      Exact(values.rate));
    }
    csv += "\r\n";
  }
  return csv;
}

}  // namespace kaon::coordinator
