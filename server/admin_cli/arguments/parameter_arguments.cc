#include "server/admin_cli/arguments/parameter_arguments.h"

#include "server/admin_cli/arguments/add_command.h"

namespace kaon::admin_cli {

void AddParameterCommands(CLI::App& app, Options& options) {
  CLI::App* parameter = app.add_subcommand("parameter", "One parameter");
  parameter->require_subcommand(1);
  parameter->fallthrough();
  CLI::App* read = AddCommand(*parameter, "read", "Values of its weights or optimizer state",
                              Command::kParameterRead, options);
  read->add_option("--tensor", options.tensor,
                   "weight, momentum_buffer, exp_avg or exp_avg_sq (weight)");
  read->add_option("--offset", options.offset, "First element, in row-major order (0)");
  read->add_option("--count", options.count, "Number of elements (16)")
      ->check(CLI::Range(1, 262144));
  for (CLI::App* one :
       {read,
        AddCommand(*parameter, "history", "Norms and ranks over the steps, oldest first",
                   Command::kParameterHistory, options),
        AddCommand(*parameter, "stats", "Norms of weight, gradient, last update and momentum",
                   Command::kParameterStats, options),
        AddCommand(*parameter, "diagnostics", "Every stored tensor: dtype, bytes, tier, first use",
                   Command::kParameterDiagnostics, options)}) {
    one->add_option("NAME", options.parameter, "Its whole name")->required();
  }
}

}  // namespace kaon::admin_cli
