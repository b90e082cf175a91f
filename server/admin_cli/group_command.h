// `kaonctl group set`, `job set`, `pause` and `resume`: builds the request from the command line,
// and prints the answer. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_GROUP_COMMAND_H_
#define KAON_SERVER_ADMIN_CLI_GROUP_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "server/admin_cli/admin_calls.h"
#include "server/admin_cli/options.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

// Builds the request. Without --expect-revision its revision is 0, which no job has; SetGroup then
// reads the present one.
v1::SetGroupRequest SetGroupRequestOf(const Options& options);

// Runs the whole command, a compare-and-set on the job's revision. Uses the expected revision of
// the options, or reads the present one first. Codes: those of the calls.
absl::StatusOr<v1::SetGroupResponse> SetGroup(const AdminCalls& calls, const Options& options);

// Both show the new revision and every field of the group, or the job's workers.
Json GroupJson(const v1::SetGroupResponse& response);
std::string GroupText(const v1::SetGroupResponse& response);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_GROUP_COMMAND_H_
