// Adds a command to the command line of kaonctl. Used before it is parsed, by one thread.
#ifndef KAON_SERVER_ADMIN_CLI_ARGUMENTS_ADD_COMMAND_H_
#define KAON_SERVER_ADMIN_CLI_ARGUMENTS_ADD_COMMAND_H_

#include <CLI/CLI.hpp>

#include "server/admin_cli/arguments/option_values.h"

namespace kaon::admin_cli {

// Adds a subcommand that sets `command` when the user gives it. `options` outlives the app.
inline CLI::App* AddCommand(CLI::App& parent, const char* name, const char* help, Command command,
                            Options& options) {
  CLI::App* sub = parent.add_subcommand(name, help);
  sub->fallthrough();
  sub->callback([&options, command] { options.command = command; });
  return sub;
}

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_ARGUMENTS_ADD_COMMAND_H_
