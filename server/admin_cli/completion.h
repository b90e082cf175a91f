// Makes the script by which a shell completes kaonctl's commands and flags. A pure function; any
// thread.
#ifndef KAON_SERVER_ADMIN_CLI_COMPLETION_H_
#define KAON_SERVER_ADMIN_CLI_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace kaon::admin_cli {

// Returns the script for "bash" or "zsh", from the commands and flags of `app`.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_COMPLETION_H_
