#include "server/coordinator/page/history_page.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/page/chart.h"
#include "server/coordinator/page/html.h"

namespace kaon::coordinator {

namespace {

struct Value {
  const char* name;
  bool (v1::ParameterSample::*has)() const;
  double (v1::ParameterSample::*value)() const;
};

Series SeriesOf(const v1::ParameterHistory& history, const Value& value) {
  Series series;
  series.name = value.name;
  for (const v1::ParameterSample& sample : history.samples()) {
    if (value.has != nullptr && !(sample.*value.has)()) continue;
    series.points.emplace_back(static_cast<double>(sample.step()), (sample.*value.value)());
  }
  return series;
}

std::string ChartOf(const v1::ParameterHistory& history, const char* title, const char* help,
                    const std::vector<Value>& values) {
  Chart chart;
  chart.title = title;
  chart.help = help;
  for (const Value& value : values) {
    Series series = SeriesOf(history, value);
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return chart.series.empty() ? "" : LineChart(std::move(chart));
}

std::string Facts(const v1::GetParameterHistoryResponse& history) {
  const v1::ParameterPlacement& placement = history.placement();
  return absl::StrCat("<p>Group ", Escape(placement.group().empty() ? "-" : placement.group()),
                      ", shard ", placement.shard(), ". A sample every ",
                      history.history().every_steps(),
                      " steps or more, since the shard started. <a href=\"/parameter.csv?id=",
                      placement.parameter_id(), "\" download>Download as CSV</a></p>");
}

}  // namespace

std::string HistoryHtml(absl::string_view name, const v1::GetParameterHistoryResponse& history) {
  using Sample = v1::ParameterSample;
  const v1::ParameterHistory& samples = history.history();
  std::string html = absl::StrCat("<h2>", Escape(name), "</h2>", Facts(history));
  if (samples.samples().empty()) {
    return absl::StrCat(html, "<p class=\"none\">No samples. Parameters that are frozen or on a ",
                        "disk have none.</p>");
  }
  absl::StrAppend(
      &html,
      ChartOf(samples, "Update / weight", "norm of the update divided by that of the weight",
              {{"ratio", &Sample::has_update_to_weight_ratio, &Sample::update_to_weight_ratio}}),
      ChartOf(samples, "Norms", "gradients before clipping",
              {{"weight", nullptr, &Sample::weight_norm},
               {"gradient", &Sample::has_grad_norm, &Sample::grad_norm},
               {"update", &Sample::has_update_norm, &Sample::update_norm}}),
      ChartOf(samples, "Stable rank", "of the weight: how many directions it really uses",
              {{"stable rank", &Sample::has_stable_rank, &Sample::stable_rank}}),
      ChartOf(samples, "Orthogonality error", "of the update, before its scale",
              {{"error", &Sample::has_orthogonality_error, &Sample::orthogonality_error}}));
  return html;
}

std::string HistoryProblemHtml(absl::string_view problem) {
  return absl::StrCat("<h2>Parameter</h2><p class=\"bad\">", Escape(problem), "</p>");
}

}  // namespace kaon::coordinator
