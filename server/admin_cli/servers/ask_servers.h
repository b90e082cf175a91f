// Asks every server of a cluster itself, by its service ServerProcess: `kaonctl log set`,
// `kaonctl config`, and traffic for `kaonctl top`. One thread.
#ifndef KAON_SERVER_ADMIN_CLI_SERVERS_ASK_SERVERS_H_
#define KAON_SERVER_ADMIN_CLI_SERVERS_ASK_SERVERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/server_process.grpc.pb.h"
#include "proto/identity.h"
#include "server/admin_cli/options.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

// The answer of one server.
struct ServerRow {
  // coordinator, or shard and its index.
  std::string server;
  std::string address;
  absl::Status status;
  // The answer as fields, if the status is OK.
  Json fields;
};

struct ServerReport {
  std::vector<ServerRow> rows;
  // OK if `rows` has every shard; otherwise why they could not be listed.
  absl::Status shards;
};

// Asks one server. The error names the address.
absl::StatusOr<v1::GetProcessResponse> GetProcess(const Options& options,
                                                  const std::string& address, proto::Role role);

// Each asks every coordinator of the options, and every shard of `status`. If the options name a
// shard, it asks that shard alone. A server that does not answer is a row, not an error.
ServerReport SetLogLevels(const Options& options,
                          const absl::StatusOr<v1::GetStatusResponse>& status);
ServerReport GetConfigs(const Options& options,
                        const absl::StatusOr<v1::GetStatusResponse>& status);

// OK if every server answered. Otherwise the code of the first one that did not; names all such.
absl::Status AllAnswered(const ServerReport& report);
Json ServersJson(const ServerReport& report);
std::string LogLevelsText(const ServerReport& report);
std::string ConfigsText(const ServerReport& report);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_SERVERS_ASK_SERVERS_H_
