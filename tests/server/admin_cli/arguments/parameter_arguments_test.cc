// Through the whole command line: global options may come before and after a command.
#include "server/admin_cli/arguments/parameter_arguments.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/admin_cli/options.h"

namespace kaon::admin_cli {
namespace {

ParsedCommandLine Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "kaonctl");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

TEST(ParameterArgumentsTest, AskingForOneParameterNeedsItsName) {
  const ParsedCommandLine stats =
      Parse({"parameter", "stats", "h.0.weight", "--endpoints", "a:1", "-o", "json"});
  ASSERT_TRUE(stats.options.has_value()) << stats.text;
  EXPECT_EQ(stats.options->command, Command::kParameterStats);
  EXPECT_EQ(stats.options->parameter, "h.0.weight");
  const ParsedCommandLine diagnostics =
      Parse({"--endpoints", "a:1", "parameter", "diagnostics", "wte"});
  ASSERT_TRUE(diagnostics.options.has_value()) << diagnostics.text;
  EXPECT_EQ(diagnostics.options->command, Command::kParameterDiagnostics);
  const ParsedCommandLine read = Parse({"--endpoints", "a:1", "parameter", "read", "wte",
                                        "--tensor", "exp_avg", "--offset", "5", "--count", "9"});
  ASSERT_TRUE(read.options.has_value()) << read.text;
  EXPECT_EQ(read.options->command, Command::kParameterRead);
  EXPECT_EQ(read.options->tensor, "exp_avg");
  EXPECT_EQ(read.options->offset, 5u);
  EXPECT_EQ(read.options->count, 9u);
  EXPECT_EQ(Parse({"--endpoints", "a:1", "parameter", "read", "wte", "--count", "0"}).exit_status,
            2);
  const ParsedCommandLine history =
      Parse({"--endpoints", "a:1", "parameter", "history", "wte", "-o", "csv"});
  ASSERT_TRUE(history.options.has_value()) << history.text;
  EXPECT_EQ(history.options->command, Command::kParameterHistory);
  EXPECT_TRUE(history.options->csv);
  EXPECT_EQ(Parse({"--endpoints", "a:1", "steps", "-o", "csv"}).exit_status, 2);
  EXPECT_EQ(Parse({"--endpoints", "a:1", "parameter", "stats"}).exit_status, 2);
  EXPECT_EQ(Parse({"--endpoints", "a:1", "parameter"}).exit_status, 2);
}

}  // namespace
}  // namespace kaon::admin_cli
