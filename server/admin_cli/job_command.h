// kaonctl job list and job delete. Free functions; one thread.
#ifndef KAON_SERVER_ADMIN_CLI_JOB_COMMAND_H_
#define KAON_SERVER_ADMIN_CLI_JOB_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "server/admin_cli/admin_calls.h"
#include "server/admin_cli/options.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

struct DeletedJob {
  std::string name;
  v1::DeleteJobResponse answer;
};

// Deletes the job that the options name, in the timeline that it has now. NOT_FOUND for another
// one. Retries like AdminCalls::SetGroup.
absl::StatusOr<DeletedJob> DeleteJob(const AdminCalls& calls, const Options& options);

Json JobListJson(const v1::ListJobsResponse& response);
std::string JobListText(const v1::ListJobsResponse& response);
Json DeletedJobJson(const DeletedJob& deleted);
std::string DeletedJobText(const DeletedJob& deleted);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_JOB_COMMAND_H_
