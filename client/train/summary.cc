#include "client/train/summary.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace kaon::train {
namespace {

using Json = nlohmann::ordered_json;

double Rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

// Reasons come from servers: replace bytes that are no UTF-8.
std::string OneLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json OrNull(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

std::string HexDigest(uint64_t digest) { return absl::StrFormat("%016x", digest); }

Json PhasesJson(const PhaseSeconds& seconds) {
  return {{"compute", seconds.compute},
          {"push", seconds.push},
          {"decide", seconds.decide},
          {"pull", seconds.pull}};
}

// For one route: how many parameters it has, and how often they were stepped.
struct RouteCount {
  int parameters = 0;
  uint64_t updates = 0;
};

std::map<std::string, RouteCount> CountRoutes(const RunSummary& summary) {
  std::map<std::string, RouteCount> routes;
  for (const ParameterSummary& parameter : summary.parameters) {
    RouteCount& route = routes[parameter.group];
    ++route.parameters;
    route.updates += parameter.updates;
  }
  return routes;
}

}  // namespace

std::string FormatStep(const StepReport& report) {
  const kaon::StepRecord& record = report.record;
  std::string line = absl::StrFormat("step %5d", record.step);
  if (record.loss.has_value()) absl::StrAppendFormat(&line, "  loss %.4f", *record.loss);
  for (const kaon::GroupNorm& norm : record.norms) {
    if (!norm.norm.has_value()) continue;
    absl::StrAppendFormat(&line, "  |%s| %.4f", norm.group, *norm.norm);
    if (norm.exempt) {
      absl::StrAppend(&line, " (exempt)");
    } else {
      absl::StrAppendFormat(&line, " clip %.4f", norm.clip_factor);
    }
  }
  if (!record.applied) absl::StrAppend(&line, "  SKIPPED: ", record.reason);
  const PhaseSeconds& seconds = report.seconds;
  absl::StrAppendFormat(
      &line,
      "  %.0f tok/s  push %.1f MB/s  pull %.1f MB/s  ms: compute %.1f push %.1f decide %.1f "
      "pull %.1f",
      Rate(report.tokens, seconds.total()), Rate(report.push_bytes / 1e6, seconds.push),
      Rate(report.pull_bytes / 1e6, seconds.pull), seconds.compute * 1e3, seconds.push * 1e3,
      seconds.decide * 1e3, seconds.pull * 1e3);
  return line;
}

std::string FormatSummary(const RunSummary& summary) {
  std::string text = absl::StrFormat("\n%-22s %12s  %-7s %8s %8s  %s\n", "parameter", "shape",
                                     "route", "updates", "NS", "reason");
  for (const ParameterSummary& parameter : summary.parameters) {
    const std::string calls =
        parameter.orthogonalized ? absl::StrCat(parameter.newton_schulz_updates) : "-";
    absl::StrAppendFormat(&text, "%-22s %12s  %-7s %8d %8s  %s\n", parameter.name,
                          absl::StrJoin(parameter.shape, "x"), parameter.group, parameter.updates,
                          calls, parameter.reason);
  }
  absl::StrAppend(&text, "\n");
  for (const auto& [group, count] : CountRoutes(summary)) {
    absl::StrAppendFormat(&text, "route %-8s %d parameters, %d updates\n", group, count.parameters,
                          count.updates);
  }
  absl::StrAppendFormat(&text, "steps %d .. %d%s: %d applied, %d skipped\n", summary.first_step + 1,
                        summary.last_step, summary.stopped ? " (stopped)" : "", summary.applied,
                        summary.skipped);
  const PhaseSeconds& phases = summary.phases;
  absl::StrAppendFormat(
      &text,
      "time %.1f s, %.0f tokens/s; of one worker: compute %.1f s, push %.1f s, decide %.1f s, pull "
      "%.1f s\n",
      summary.seconds, Rate(summary.tokens, summary.seconds), phases.compute, phases.push,
      phases.decide, phases.pull);
  absl::StrAppendFormat(
      &text, "payload pushed %.1f MB, pulled %.1f MB; of both %.1f MB through shared memory\n",
      summary.push_bytes / 1e6, summary.pull_bytes / 1e6, summary.shm_bytes / 1e6);
  absl::StrAppendFormat(&text,
                        "validation loss %.4f nats per character (bigram %.4f, 5-gram %.4f)\n",
                        summary.validation_loss, summary.bigram_loss, summary.fivegram_loss);
  absl::StrAppend(&text, "weights digest ", HexDigest(summary.weights_digest), "\n");
  return text;
}

std::string StepJson(const StepReport& report) {
  const kaon::StepRecord& record = report.record;
  Json json = {{"type", "step"}, {"step", record.step}, {"applied", record.applied}};
  if (!record.applied) json["reason"] = record.reason;
  json["loss"] = OrNull(record.loss);
  json["grad_norm"] = OrNull(record.grad_norm);
  json["live_norm"] = OrNull(record.live_norm);
  json["groups"] = Json::object();
  for (const kaon::GroupNorm& norm : record.norms) {
    json["groups"][norm.group] = {
        {"norm", OrNull(norm.norm)}, {"exempt", norm.exempt}, {"clip_factor", norm.clip_factor}};
  }
  json["tokens"] = report.tokens;
  json["push_bytes"] = report.push_bytes;
  json["pull_bytes"] = report.pull_bytes;
  json["seconds"] = PhasesJson(report.seconds);
  return OneLine(json);
}

std::string SummaryJson(const RunSummary& summary) {
  Json json = {{"type", "summary"},
               {"steps", summary.last_step - summary.first_step},
               {"first_step", summary.first_step},
               {"last_step", summary.last_step},
               {"applied", summary.applied},
               {"skipped", summary.skipped},
               {"stopped", summary.stopped},
               {"validation_loss", summary.validation_loss},
               {"bigram_loss", summary.bigram_loss},
               {"fivegram_loss", summary.fivegram_loss},
               {"weights_digest", HexDigest(summary.weights_digest)}};
  json["newton_schulz_updates"] = Json::object();
  json["routes"] = Json::object();
  for (const ParameterSummary& parameter : summary.parameters) {
    json["routes"][parameter.name] = {
        {"group", parameter.group}, {"reason", parameter.reason}, {"updates", parameter.updates}};
    if (!parameter.orthogonalized) continue;
    json["newton_schulz_updates"][parameter.name] = parameter.newton_schulz_updates;
  }
  json["seconds"] = summary.seconds;
  json["phases"] = PhasesJson(summary.phases);
  json["tokens"] = summary.tokens;
  json["push_bytes"] = summary.push_bytes;
  json["pull_bytes"] = summary.pull_bytes;
  json["shm_bytes"] = summary.shm_bytes;
  return OneLine(json);
}

}  // namespace kaon::train
