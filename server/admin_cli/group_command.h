// `kaonctl group set` and `kaonctl job set`: from the words of the command line to the request, and
// what is printed of the answer. Pure functions; any thread.
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

// Without --expect-revision it is 0, which no job has: SetGroup reads it first.
v1::SetGroupRequest SetGroupRequestOf(const Options& options);

// The whole command: compare-and-set with the revision that was given, or read just before. Codes:
// those of the calls.
absl::StatusOr<v1::SetGroupResponse> SetGroup(const AdminCalls& calls, const Options& options);

// The new revision and every field of the group, or the job's workers.
Json GroupJson(const v1::SetGroupResponse& response);
std::string GroupText(const v1::SetGroupResponse& response);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_GROUP_COMMAND_H_
