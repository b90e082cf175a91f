// Prints `kaonctl job show --effective`: every value of the job and its origin. Pure functions; any
// thread.
#ifndef KAON_SERVER_ADMIN_CLI_EFFECTIVE_REPORT_H_
#define KAON_SERVER_ADMIN_CLI_EFFECTIVE_REPORT_H_

#include <string>

#include "kaon/v1/coordinator.pb.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

Json EffectiveJson(const v1::JobDescription& job);
std::string EffectiveText(const v1::JobDescription& job);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_EFFECTIVE_REPORT_H_
