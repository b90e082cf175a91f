// Exit statuses of kaonctl and the words of its errors. Scripts rely on them: a status never
// changes its meaning. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_EXIT_STATUS_H_
#define KAON_SERVER_ADMIN_CLI_EXIT_STATUS_H_

#include <string>

#include "absl/status/status.h"

namespace kaon::admin_cli {

inline constexpr int kExitUsage = 2;

// Returns the exit status of a command that ended with `status`; 1 for a code without a row.
int ExitStatusOf(const absl::Status& status);

// Returns the table of exit statuses for --help, a line each.
std::string ExitStatusHelp();

// Returns the error for stderr: one line, or with `json` an object with code, message, exit_status.
std::string ErrorText(const absl::Status& status, bool json);
// Returns the same for a wrong command line.
std::string UsageErrorText(const std::string& message, bool json);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_EXIT_STATUS_H_
