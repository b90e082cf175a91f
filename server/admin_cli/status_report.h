// Prints `kaonctl status`: the service, its shards and its workers. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_STATUS_REPORT_H_
#define KAON_SERVER_ADMIN_CLI_STATUS_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "kaon/v1/admin.pb.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

// UNAVAILABLE names every shard that did not answer, and why.
absl::Status AllShardsSeen(const v1::GetStatusResponse& status);

// Facts of a shard that did not answer are absent, and "-" in a table. So are job and step if no
// shard told them.
Json StatusJson(const v1::GetStatusResponse& status);
std::string StatusText(const v1::GetStatusResponse& status);
// Adds columns for `-o wide`.
std::string StatusWideText(const v1::GetStatusResponse& status);

// Print one shard that was asked itself.
Json OneShardJson(const v1::ShardStatus& shard);
std::string OneShardText(const v1::ShardStatus& shard);

// Print the workers of a coordinator that holds the shards.
Json WorkerListJson(const v1::GetStatusResponse& status);
std::string WorkerListText(const v1::GetStatusResponse& status);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_STATUS_REPORT_H_
