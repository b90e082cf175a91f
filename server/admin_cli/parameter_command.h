// Prints `kaonctl parameter stats` and `kaonctl parameter diagnostics`, as JSON with stable keys
// (docs/kaonctl.md) and as a table. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_PARAMETER_COMMAND_H_
#define KAON_SERVER_ADMIN_CLI_PARAMETER_COMMAND_H_

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

// A value that does not exist yet, or not for this rule, is null in JSON and a dash in the table.
Json ParameterStatsJson(const NamedStats& stats);
std::string ParameterStatsText(const NamedStats& stats);

Json ParameterDiagnosticsJson(const NamedDiagnostics& diagnostics);
std::string ParameterDiagnosticsText(const NamedDiagnostics& diagnostics);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_PARAMETER_COMMAND_H_
