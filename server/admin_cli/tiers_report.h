// Prints `kaonctl tiers`: where each shard keeps weights and optimizer state, and what its disk
// did. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_TIERS_REPORT_H_
#define KAON_SERVER_ADMIN_CLI_TIERS_REPORT_H_

#include <string>

#include "kaon/v1/coordinator.pb.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

// Rates are null before the first read or write, and all of a disk for memory.
Json TiersJson(const v1::GetStatusResponse& status);
std::string TiersText(const v1::GetStatusResponse& status);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_TIERS_REPORT_H_
