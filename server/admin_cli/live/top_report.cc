#include "server/admin_cli/live/top_report.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/admin_cli/phases_report.h"
#include "server/admin_cli/status_report.h"
#include "server/admin_cli/table.h"
#include "server/monitor/units.h"

namespace kaon::admin_cli {

using monitor::Bytes;
using monitor::Seconds;
using monitor::TimeText;

namespace {

constexpr double kMillisecond = 1e-3;
constexpr double kMicrosecond = 1e-6;
// Ordered as in a step.
constexpr const char* kPhases[] = {"receive",   "fold",   "journal", "prepare",
                                   "speculate", "decide", "apply",   "pull"};

// Means over the newest steps of one shard, in seconds per step.
struct StepTimes {
  double total = 0;
  // Work on each phase that happened, by name.
  std::map<std::string, double> phases;
  // Time without work on any phase. Absent if the shard does not report it.
  std::optional<double> idle;
};

// Returns the times of the steps that a shard has finished. Absent if there are none.
std::optional<StepTimes> TimesOf(const v1::StepHistoryResponse& history, uint32_t shard) {
  for (const v1::ShardPhases& of_shard : history.phases()) {
    if (of_shard.shard() != shard || of_shard.steps().empty()) continue;
    StepTimes times;
    double idle = 0;
    bool knows_idle = true;
    // The newest step may go on: readers still pull its weights.
    const int num_steps = std::max(1, of_shard.steps_size() - 1);
    const double weight = kMicrosecond / num_steps;
    for (int i = 0; i < num_steps; ++i) {
      const v1::StepPhases& step = of_shard.steps(i);
      const auto total = static_cast<double>(step.total_microseconds());
      times.total += weight * total;
      knows_idle = knows_idle && step.has_active_microseconds();
      idle += weight * std::max(0.0, total - static_cast<double>(step.active_microseconds()));
      for (const v1::Phase& phase : step.phases()) {
        const uint64_t active = phase.has_active_microseconds() ? phase.active_microseconds()
                                                                : phase.busy_microseconds();
        times.phases[phase.name()] += weight * static_cast<double>(active);
      }
    }
    if (knows_idle) times.idle = idle;
    return times;
  }
  return std::nullopt;
}

// Returns the seconds since the newest decision, by the coordinator's clock. Absent if unknown.
std::optional<double> SinceLastStep(const TopFacts& facts) {
  int64_t newest = 0;
  for (const auto& [position, millis] : facts.history.decided_unix_millis()) {
    newest = std::max(newest, millis);
  }
  if (newest == 0 || facts.status.time_unix_millis() == 0) return std::nullopt;
  return kMillisecond *
         static_cast<double>(std::max<int64_t>(0, facts.status.time_unix_millis() - newest));
}

Json OrNull(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

std::string Milliseconds(std::optional<double> seconds) {
  return seconds ? absl::StrFormat("%.2f", 1e3 * *seconds) : "-";
}

std::optional<double> Find(const StepTimes& times, const std::string& phase) {
  const auto found = times.phases.find(phase);
  if (found == times.phases.end()) return std::nullopt;
  return found->second;
}

ShardTraffic TrafficOf(const TopFacts& facts, const v1::ShardStatus& shard) {
  const auto found = facts.traffic.find(shard.shard());
  return found == facts.traffic.end() ? ShardTraffic() : found->second;
}

std::string GigabytesPerSecond(std::optional<double> bytes_per_second) {
  return bytes_per_second ? absl::StrFormat("%.3f", 1e-9 * *bytes_per_second) : "-";
}

Json ShardJson(const TopFacts& facts, const v1::ShardStatus& shard) {
  Json row = {
      {"shard", shard.shard()}, {"connected", shard.connected()}, {"problem", shard.problem()}};
  const bool known = shard.has_description();
  const v1::DescribeShardResponse& description = shard.description();
  row["applied_step"] = known ? Json(description.state().applied_step()) : Json(nullptr);
  row["used_bytes"] = known ? Json(description.used_bytes()) : Json(nullptr);
  row["capacity_bytes"] = known ? Json(description.capacity_bytes()) : Json(nullptr);
  const ShardTraffic traffic = TrafficOf(facts, shard);
  row["pushed_bytes_per_second"] = OrNull(traffic.pushed_per_second);
  row["pulled_bytes_per_second"] = OrNull(traffic.pulled_per_second);
  row["resident_bytes"] = traffic.resident_bytes ? Json(*traffic.resident_bytes) : Json(nullptr);
  const std::optional<StepTimes> times = TimesOf(facts.history, shard.shard());
  row["step_seconds"] = times ? Json(times->total) : Json(nullptr);
  row["idle_seconds"] = times ? OrNull(times->idle) : Json(nullptr);
  row["phase_seconds"] = times ? Json(times->phases) : Json(nullptr);
  return row;
}

std::string WorkersText(const TopFacts& facts) {
  if (!facts.status.holder()) return "unknown workers";
  const int num_workers = facts.status.workers_size();
  return absl::StrCat(num_workers, num_workers == 1 ? " worker" : " workers");
}

std::string HeaderText(const TopFacts& facts) {
  const std::optional<double> rate = StepsPerSecond(facts);
  const std::optional<double> since = SinceLastStep(facts);
  return absl::StrCat(OrDash(facts.status.job()), ": step ", facts.status.applied_step(), ", ",
                      rate ? absl::StrFormat("%.2f", *rate) : "-", " steps/s, newest ",
                      since ? absl::StrCat(Seconds(*since), " ago") : "-", ", ", WorkersText(facts),
                      ", ", OrDash(TimeText(facts.status.time_unix_millis())), "\n",
                      OrDash(facts.status.phase()), "\n\n");
}

}  // namespace

std::optional<double> StepsPerSecond(const TopFacts& facts) {
  std::vector<int64_t> decided;
  for (const v1::StepRecord& record : facts.history.records()) {
    const auto found = facts.history.decided_unix_millis().find(record.plan().position());
    if (found != facts.history.decided_unix_millis().end()) decided.push_back(found->second);
  }
  if (decided.size() < 2) return std::nullopt;
  const auto [oldest, newest] = std::minmax_element(decided.begin(), decided.end());
  double steps = static_cast<double>(decided.size()) - 1;
  double seconds = kMillisecond * static_cast<double>(*newest - *oldest);
  const double since = SinceLastStep(facts).value_or(0);
  // A job that waits must not keep the rate that it had.
  if (since > seconds / steps) {
    seconds += since;
    steps += 1;
  }
  if (seconds <= 0) return std::nullopt;
  return steps / seconds;
}

absl::Status TopSeen(const TopFacts& facts) {
  for (const absl::Status& seen : {AllShardsSeen(facts.status), AllPhasesSeen(facts.history)}) {
    if (!seen.ok()) return seen;
  }
  return facts.traffic_seen;
}

Json TopJson(const TopFacts& facts) {
  const bool known = !facts.status.job().empty();
  Json json = {{"time", TimeJson(facts.status.time_unix_millis())},
               {"job", facts.status.job()},
               {"phase", facts.status.phase()},
               {"applied_step", known ? Json(facts.status.applied_step()) : Json(nullptr)},
               {"steps_per_second", OrNull(StepsPerSecond(facts))},
               {"seconds_since_step", OrNull(SinceLastStep(facts))}};
  json["workers"] = facts.status.holder() ? Json(facts.status.workers_size()) : Json(nullptr);
  json["shards"] = Json::array();
  for (const v1::ShardStatus& shard : facts.status.shards()) {
    json["shards"].push_back(ShardJson(facts, shard));
  }
  return json;
}

std::string TopText(const TopFacts& facts) {
  constexpr Align kRight = Align::kRight;
  std::vector<Column> columns = {{"SHARD", kRight}, {"STEP", kRight}, {"STEP MS", kRight}};
  for (const absl::string_view phase : kPhases) {
    columns.push_back({absl::AsciiStrToUpper(phase), kRight});
  }
  for (Column column : std::vector<Column>{{"IDLE", kRight},
                                           {"PUSH GB/S", kRight},
                                           {"PULL GB/S", kRight},
                                           {"USED", kRight},
                                           {"CAPACITY", kRight},
                                           {"RESIDENT", kRight},
                                           {"PROBLEM"}}) {
    columns.push_back(std::move(column));
  }
  Table table(std::move(columns));
  for (const v1::ShardStatus& shard : facts.status.shards()) {
    const v1::DescribeShardResponse& description = shard.description();
    const bool known = shard.has_description();
    const std::optional<StepTimes> times = TimesOf(facts.history, shard.shard());
    std::vector<std::string> row = {absl::StrCat(shard.shard()),
                                    known ? absl::StrCat(description.state().applied_step()) : "-",
                                    times ? Milliseconds(times->total) : "-"};
    for (const char* const phase : kPhases) {
      row.push_back(times ? Milliseconds(Find(*times, phase)) : "-");
    }
    row.push_back(times ? Milliseconds(times->idle) : "-");
    const ShardTraffic traffic = TrafficOf(facts, shard);
    row.push_back(GigabytesPerSecond(traffic.pushed_per_second));
    row.push_back(GigabytesPerSecond(traffic.pulled_per_second));
    row.push_back(known ? Bytes(description.used_bytes()) : "-");
    row.push_back(known ? Bytes(description.capacity_bytes()) : "-");
    row.push_back(traffic.resident_bytes ? Bytes(*traffic.resident_bytes) : "-");
    row.push_back(OrDash(shard.problem()));
    table.AddRow(std::move(row));
  }
  return absl::StrCat(HeaderText(facts), table.ToString());
}

}  // namespace kaon::admin_cli
