#include "server/admin_cli/version_command.h"

#include <gtest/gtest.h>

namespace kaon::admin_cli {
namespace {

TEST(VersionCommandTest, SaysWhetherThePluginIsThereAndUsable) {
  VersionFacts facts = {
      {"1.2.3", "abc", "opt"}, "backend cpu", "cpu/amx", false, "no libkaon_cuda.so"};
  EXPECT_EQ(VersionsText(facts),
            "version  1.2.3\ncommit   abc\nbuild    opt\nbuilt in backend cpu\n"
            "cpu      cpu/amx\ncuda     plugin not found\n");
  facts.has_cuda_plugin = true;
  EXPECT_NE(VersionsText(facts).find("plugin found, not usable: no lib"), std::string::npos);
  facts.cuda_problem = "";
  EXPECT_NE(VersionsText(facts).find("cuda     usable\n"), std::string::npos);
  EXPECT_EQ(VersionJson(facts)["features"].dump(),
            R"({"built_in":"backend cpu","cpu":"cpu/amx","cuda_plugin":true,"cuda_problem":""})");
}

TEST(VersionCommandTest, ReadsTheBackendOfThisMachine) {
  EXPECT_EQ(ReadVersion().cpu.rfind("cpu/", 0), 0u) << ReadVersion().cpu;
}

}  // namespace
}  // namespace kaon::admin_cli
