// `kaonctl version`: this build and what it can use on this machine. One thread.
#ifndef KAON_SERVER_ADMIN_CLI_VERSION_COMMAND_H_
#define KAON_SERVER_ADMIN_CLI_VERSION_COMMAND_H_

#include <string>

#include "proto/version.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

struct VersionFacts {
  proto::Version version;
  // See kernels::BuiltInFeatures.
  std::string built_in;
  // Backend of this CPU, such as "cpu/amx".
  std::string cpu;
  // True if libkaon_cuda.so is found. `cuda_problem` is empty if it can be used.
  bool has_cuda_plugin = false;
  std::string cuda_problem;
};

// Loads the plugin if it is found.
VersionFacts ReadVersion();

Json VersionJson(const VersionFacts& facts);
std::string VersionsText(const VersionFacts& facts);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_VERSION_COMMAND_H_
