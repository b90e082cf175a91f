// The commands of kaonctl on checkpoints. Used before the command line is parsed, by one thread.
#ifndef KAON_SERVER_ADMIN_CLI_ARGUMENTS_CHECKPOINT_ARGUMENTS_H_
#define KAON_SERVER_ADMIN_CLI_ARGUMENTS_CHECKPOINT_ARGUMENTS_H_

#include <CLI/CLI.hpp>

#include "server/admin_cli/arguments/option_values.h"

namespace kaon::admin_cli {

// `options` outlives the app.
void AddCheckpointCommands(CLI::App& app, Options& options);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_ARGUMENTS_CHECKPOINT_ARGUMENTS_H_
