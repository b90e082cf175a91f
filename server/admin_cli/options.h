// The request to kaonctl: command line and environment, checked and resolved to endpoints and
// certificate files. Plain values; main calls it once, before any thread starts.
#ifndef KAON_SERVER_ADMIN_CLI_OPTIONS_H_
#define KAON_SERVER_ADMIN_CLI_OPTIONS_H_

#include <optional>
#include <string>

#include "server/admin_cli/arguments/option_values.h"

namespace kaon::admin_cli {

// Holds either the options or a text and an exit status: 0 for --help, --version and completion, 2
// for a bad command line.
struct ParsedCommandLine {
  std::optional<Options> options;
  std::string text;
  int exit_status = 0;
};

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_OPTIONS_H_
