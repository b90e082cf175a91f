// Prints `kaonctl backend`: the backend of each shard, and the Newton-Schulz form of Muon's
// matrices. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_BACKEND_REPORT_H_
#define KAON_SERVER_ADMIN_CLI_BACKEND_REPORT_H_

#include <string>
#include <vector>

#include "kaon/v1/admin.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

struct BackendFacts {
  v1::GetStatusResponse status;
  v1::JobDescription job;
  std::vector<v1::ParameterRow> parameters;
};

Json BackendJson(const BackendFacts& facts);
std::string BackendText(const BackendFacts& facts);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_BACKEND_REPORT_H_
