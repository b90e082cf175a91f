// Prints the workers of `kaonctl status` and `kaonctl worker list`, as JSON and as a table. Pure
// functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_WORKER_REPORT_H_
#define KAON_SERVER_ADMIN_CLI_WORKER_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "kaon/v1/admin.pb.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::admin_cli {

// Returns the counter of the attempt's ballot, a dot, and the attempt's number: 3.7.
std::string AttemptText(const v1::Attempt& attempt);

// Returns the counter, and the incarnation as 32 hexadecimal digits.
nlohmann::ordered_json BallotJson(const v1::Ballot& ballot);

nlohmann::ordered_json WorkersJson(const v1::GetStatusResponse& status);
std::string WorkersText(const v1::GetStatusResponse& status);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_WORKER_REPORT_H_
