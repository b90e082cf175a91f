#include "server/admin_cli/job_command.h"

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/admin_cli/table.h"

namespace kaon::admin_cli {

absl::StatusOr<DeletedJob> DeleteJob(const AdminCalls& calls, const Options& options) {
  KAON_ASSIGN_OR_RETURN(const v1::JobDescription job,
                        calls.DescribeJob(options.deleted_job, AdminCalls::WhileAway::kAskAgain));
  v1::DeleteJobRequest request;
  request.set_job(options.deleted_job);
  request.set_timeline(job.timeline());
  request.set_request_id(RandomRequestId());
  KAON_ASSIGN_OR_RETURN(const v1::DeleteJobResponse answer, calls.DeleteJob(request));
  return DeletedJob{options.deleted_job, answer};
}

Json JobListJson(const v1::ListJobsResponse& response) {
  Json jobs = Json::array();
  for (const v1::JobRow& row : response.jobs()) {
    jobs.push_back(
        {{"job", row.job()},
         {"timeline", row.timeline()},
         {"applied_step", row.applied_step()},
         {"parameters", row.parameters()},
         {"elements", row.elements()},
         {"workers", row.workers()},
         {"stopped_reason", row.stopped_reason().empty() ? Json() : Json(row.stopped_reason())}});
  }
  return {{"jobs", std::move(jobs)}};
}

std::string JobListText(const v1::ListJobsResponse& response) {
  constexpr Align kRight = Align::kRight;
  Table table({{"JOB"},
               {"TIMELINE", kRight},
               {"APPLIED STEP", kRight},
               {"PARAMETERS", kRight},
               {"ELEMENTS", kRight},
               {"WORKERS", kRight},
               {"STOPPED"}});
  for (const v1::JobRow& row : response.jobs()) {
    table.AddRow({row.job(), absl::StrCat(row.timeline()), absl::StrCat(row.applied_step()),
                  absl::StrCat(row.parameters()), absl::StrCat(row.elements()),
                  absl::StrCat(row.workers()),
                  row.stopped_reason().empty() ? "-" : row.stopped_reason()});
  }
  return table.ToString();
}

Json DeletedJobJson(const DeletedJob& deleted) {
  return {{"deleted", deleted.name}, {"position", deleted.answer.position()}};
}

std::string DeletedJobText(const DeletedJob& deleted) {
  return absl::StrCat("deleted job ", deleted.name, ", at position ", deleted.answer.position(),
                      "; its checkpoints stay\n");
}

}  // namespace kaon::admin_cli
