// Prints `kaonctl parameter stats`, `diagnostics`, `read` and `history`, as JSON with stable keys
// (docs/kaonctl.md) and as a table. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_PARAMETER_COMMAND_H_
#define KAON_SERVER_ADMIN_CLI_PARAMETER_COMMAND_H_

#include <cstdint>
#include <string>

#include "kaon/v1/admin.pb.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

// Answers for one parameter, under the name from the command line.
struct NamedStats {
  std::string name;
  v1::GetParameterStatsResponse answer;
};
struct NamedDiagnostics {
  std::string name;
  v1::GetParameterDiagnosticsResponse answer;
};
struct NamedHistory {
  std::string name;
  v1::GetParameterHistoryResponse answer;
};
// `offset` is the index of the first value.
struct NamedSlice {
  std::string name;
  std::string tensor;
  uint64_t offset = 0;
  v1::ReadSliceResponse answer;
};

// A value that does not exist yet, or not for this rule, is null in JSON and a dash in the table.
Json ParameterStatsJson(const NamedStats& stats);
std::string ParameterStatsText(const NamedStats& stats);

Json ParameterDiagnosticsJson(const NamedDiagnostics& diagnostics);
std::string ParameterDiagnosticsText(const NamedDiagnostics& diagnostics);

// JSON has no NaN and no infinity: such a value is null. The table shows it.
Json ParameterSliceJson(const NamedSlice& slice);
std::string ParameterSliceText(const NamedSlice& slice);

Json ParameterHistoryJson(const NamedHistory& history);
std::string ParameterHistoryText(const NamedHistory& history);
std::string ParameterHistoryCsv(const NamedHistory& history);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_PARAMETER_COMMAND_H_
