#include "server/admin_cli/phases_report.h"

#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/admin_cli/table.h"

namespace kaon::admin_cli {

using Json = nlohmann::ordered_json;

namespace {

uint64_t BusyOf(const v1::StepPhases& step) {
  uint64_t busy = 0;
  for (const v1::Phase& phase : step.phases()) busy += phase.busy_microseconds();
  return busy;
}

// Work that went on while other work did.
uint64_t HiddenOf(const v1::StepPhases& step) {
  const uint64_t busy = BusyOf(step);
  return busy > step.total_microseconds() ? busy - step.total_microseconds() : 0;
}

std::string Milliseconds(uint64_t microseconds) {
  return absl::StrFormat("%.3f", 1e-3 * static_cast<double>(microseconds));
}

void AddRows(uint32_t shard, const v1::StepPhases& step, Table& table) {
  for (const v1::Phase& phase : step.phases()) {
    table.AddRow({absl::StrCat(shard), phase.name(), Milliseconds(phase.begin_microseconds()),
                  Milliseconds(phase.end_microseconds()), Milliseconds(phase.busy_microseconds()),
                  ""});
  }
  table.AddRow({absl::StrCat(shard), "all", Milliseconds(0),
                Milliseconds(step.total_microseconds()), Milliseconds(BusyOf(step)),
                Milliseconds(HiddenOf(step))});
}

}  // namespace

Json PhasesJson(const v1::StepHistoryResponse& history) {
  Json shards = Json::array();
  for (const v1::ShardPhases& shard : history.phases()) {
    Json steps = Json::array();
    for (const v1::StepPhases& step : shard.steps()) {
      Json phases = Json::array();
      for (const v1::Phase& phase : step.phases()) {
        phases.push_back({{"name", phase.name()},
                          {"begin_microseconds", phase.begin_microseconds()},
                          {"end_microseconds", phase.end_microseconds()},
                          {"busy_microseconds", phase.busy_microseconds()}});
      }
      steps.push_back({{"position", step.position()},
                       {"step", step.step()},
                       {"total_microseconds", step.total_microseconds()},
                       {"hidden_microseconds", HiddenOf(step)},
                       {"phases", std::move(phases)}});
    }
    shards.push_back({{"shard", shard.shard()}, {"steps", std::move(steps)}});
  }
  return {{"shards", std::move(shards)}};
}

std::string PhasesText(const v1::StepHistoryResponse& history) {
  constexpr Align kRight = Align::kRight;
  std::map<uint64_t, Table> tables;
  std::map<uint64_t, uint64_t> step_of;
  for (const v1::ShardPhases& shard : history.phases()) {
    for (const v1::StepPhases& step : shard.steps()) {
      const auto table = tables.emplace(step.position(), Table({{"SHARD", kRight},
                                                                {"PHASE"},
                                                                {"BEGIN MS", kRight},
                                                                {"END MS", kRight},
                                                                {"BUSY MS", kRight},
                                                                {"HIDDEN MS", kRight}}));
      step_of[step.position()] = step.step();
      AddRows(shard.shard(), step, table.first->second);
    }
  }
  std::string text;
  for (const auto& [position, table] : tables) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", "step ", step_of[position], " (position ",
                    position, ")\n", table.ToString());
  }
  return text;
}

}  // namespace kaon::admin_cli
