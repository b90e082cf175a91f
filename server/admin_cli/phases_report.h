// Prints how long each phase of the steps took on every shard (`kaonctl steps --phases`), as JSON
// and as tables. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_PHASES_REPORT_H_
#define KAON_SERVER_ADMIN_CLI_PHASES_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "kaon/v1/admin.pb.h"

namespace kaon::admin_cli {

// UNAVAILABLE names every shard that did not tell its phases, and why.
absl::Status AllPhasesSeen(const v1::StepHistoryResponse& history);

// Grouped by shard.
nlohmann::ordered_json PhasesJson(const v1::StepHistoryResponse& history);

// Returns one table per step, oldest first.
std::string PhasesText(const v1::StepHistoryResponse& history);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_PHASES_REPORT_H_
