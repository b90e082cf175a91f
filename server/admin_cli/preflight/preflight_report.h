// Prints kaonctl preflight as JSON and as tables. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_PREFLIGHT_PREFLIGHT_REPORT_H_
#define KAON_SERVER_ADMIN_CLI_PREFLIGHT_PREFLIGHT_REPORT_H_

#include <string>

#include "server/admin_cli/report.h"
#include "server/preflight/preflight.h"

namespace kaon::admin_cli {

Json PreflightJson(const preflight::Report& report);
std::string PreflightText(const preflight::Report& report);
// PreflightText with address, elements, staging and backend of each shard.
std::string PreflightWideText(const preflight::Report& report);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_PREFLIGHT_PREFLIGHT_REPORT_H_
