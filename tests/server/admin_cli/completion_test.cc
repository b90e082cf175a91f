#include "server/admin_cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kaon::admin_cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CompletionTest, HasTheWordsThatMayFollowEachCommand) {
  CLI::App app("", "kaonctl");
  app.add_flag("-o,--output");
  CLI::App* job = app.add_subcommand("job");
  job->add_subcommand("set")->add_flag("--yes");
  const std::string script = CompletionScript(app, "bash");
  EXPECT_THAT(script, HasSubstr("' job' | 'job set') before="));
  EXPECT_THAT(script, HasSubstr("'') next='job -h --help -o --output' ;;"));
  EXPECT_THAT(script, HasSubstr("'job set') next=' -h --help --yes"));
  EXPECT_THAT(CompletionScript(app, "zsh"), StartsWith("#compdef kaonctl\n"));
}

}  // namespace
}  // namespace kaon::admin_cli
