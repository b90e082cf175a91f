#include "server/admin_cli/version_command.h"

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"

namespace kaon::admin_cli {

VersionFacts ReadVersion() {
  VersionFacts facts;
  facts.version = proto::ThisVersion();
  facts.built_in = kernels::BuiltInFeatures();
  kernels::BackendOptions options;
  const auto cpu = kernels::CreateBackend(options);
  facts.cpu = cpu.ok() ? (*cpu)->name() : cpu.status().ToString();
  options.name = "cuda";
  const auto cuda = kernels::CreateBackend(options);
  facts.has_cuda_plugin = !absl::IsNotFound(cuda.status());
  facts.cuda_problem = cuda.ok() ? "" : std::string(cuda.status().message());
  return facts;
}

Json VersionJson(const VersionFacts& facts) {
  return {{"version", facts.version.version},
          {"commit", facts.version.commit},
          {"build", facts.version.build},
          {"features",
           {{"built_in", facts.built_in},
            {"cpu", facts.cpu},
            {"cuda_plugin", facts.has_cuda_plugin},
            {"cuda_problem", facts.cuda_problem}}}};
}

std::string VersionsText(const VersionFacts& facts) {
  const std::string cuda = facts.cuda_problem.empty() ? "usable"
                           : facts.has_cuda_plugin
                               ? absl::StrCat("plugin found, not usable: ", facts.cuda_problem)
                               : "plugin not found";
  return absl::StrCat("version  ", facts.version.version, "\ncommit   ", facts.version.commit,
                      "\nbuild    ", facts.version.build, "\nbuilt in ", facts.built_in,
                      "\ncpu      ", facts.cpu, "\ncuda     ", cuda, "\n");
}

}  // namespace kaon::admin_cli
