#include "server/admin_cli/phases_report.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
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

// Returns how much shorter the step was than its phases in sequence, in microseconds. Absent if the
// shard does not report it.
std::optional<uint64_t> HiddenOf(const v1::StepPhases& step) {
  if (!step.has_active_microseconds()) return std::nullopt;
  uint64_t active = 0;
  for (const v1::Phase& phase : step.phases()) active += phase.active_microseconds();
  return active - std::min(active, step.active_microseconds());
}

std::optional<uint64_t> IdleOf(const v1::StepPhases& step) {
  if (!step.has_active_microseconds()) return std::nullopt;
  return step.total_microseconds() -
         std::min(step.total_microseconds(), step.active_microseconds());
}

std::optional<uint64_t> HiddenOf(const v1::Phase& phase) {
  if (!phase.has_hidden_microseconds()) return std::nullopt;
  return phase.hidden_microseconds();
}

Json OrNull(std::optional<uint64_t> microseconds) {
  return microseconds ? Json(*microseconds) : Json(nullptr);
}

std::string Milliseconds(uint64_t microseconds) {
  return absl::StrFormat("%.3f", 1e-3 * static_cast<double>(microseconds));
}

std::string Milliseconds(std::optional<uint64_t> microseconds) {
  return microseconds ? Milliseconds(*microseconds) : "-";
}

void AddRows(uint32_t shard, const v1::StepPhases& step, Table& table) {
  for (const v1::Phase& phase : step.phases()) {
    table.AddRow({absl::StrCat(shard), phase.name(), Milliseconds(phase.begin_microseconds()),
                  Milliseconds(phase.end_microseconds()), Milliseconds(phase.busy_microseconds()),
                  Milliseconds(HiddenOf(phase)), ""});
  }
  table.AddRow({absl::StrCat(shard), "all", Milliseconds(0),
                Milliseconds(step.total_microseconds()), Milliseconds(BusyOf(step)),
                Milliseconds(HiddenOf(step)), Milliseconds(IdleOf(step))});
}

}  // namespace

absl::Status AllPhasesSeen(const v1::StepHistoryResponse& history) {
  std::string unseen;
  for (const v1::ShardPhases& shard : history.phases()) {
    if (shard.problem().empty()) continue;
    absl::StrAppend(&unseen, unseen.empty() ? "" : "; ", "shard ", shard.shard(), ": ",
                    shard.problem());
  }
  if (unseen.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("phases are unknown of ", unseen));
}

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
                          {"busy_microseconds", phase.busy_microseconds()},
                          {"hidden_microseconds", OrNull(HiddenOf(phase))}});
      }
      steps.push_back({{"position", step.position()},
                       {"step", step.step()},
                       {"total_microseconds", step.total_microseconds()},
                       {"hidden_microseconds", OrNull(HiddenOf(step))},
                       {"idle_microseconds", OrNull(IdleOf(step))},
                       {"phases", std::move(phases)}});
    }
    shards.push_back(
        {{"shard", shard.shard()}, {"steps", std::move(steps)}, {"problem", shard.problem()}});
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
                                                                {"HIDDEN MS", kRight},
                                                                {"IDLE MS", kRight}}));
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
