// The deletion of the job that an admin asked for. It waits for the entry that is being applied,
// then for its own entry (ADR 0048). Pure; owned by StepMachine, one thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_JOB_DELETIONS_H_
#define KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_JOB_DELETIONS_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/agreement.pb.h"
#include "server/coordinator/machine/actions.h"
#include "server/coordinator/machine/job_state.h"

namespace kaon::coordinator {

class JobDeletions {
 public:
  bool WaitsForItsPlan() const { return pending_ && !pending_->planned; }
  // Returns whether `request` repeats the deletion that waits or, if its caller is gone, the
  // deletion `under_way`. A request without an id repeats nothing.
  bool Repeats(const v1::DeleteJobRequest& request, const v1::StepPlan& under_way) const;
  // Returns whether the newest entry of the log is the deletion that `request` asks for.
  bool IsDone(const v1::DeleteJobRequest& request, const JobState& job) const;
  // INVALID_ARGUMENT for a field that is missing. FAILED_PRECONDITION naming both timelines if the
  // job is in another one. ABORTED if another deletion waits or is `under_way`. Requires that
  // `request` names the registered job.
  absl::Status Check(const v1::DeleteJobRequest& request, const JobState& job,
                     const v1::StepPlan& under_way) const;
  // Makes `call` the one that waits, for a plan or, once `planned`, for the entry. End answers the
  // call before it.
  void Wait(CallId call, const v1::DeleteJobRequest& request, bool planned) {
    pending_ = Pending{call, request, planned};
  }
  // Returns the plan of the deletion that waits, but for what every plan has. Errors are those of
  // Check: the job may have gone to another timeline. On success the deletion is planned.
  absl::StatusOr<v1::StepPlan> Plan(const JobState& job);
  // Answers the call that waits, if one does.
  Actions End(const absl::Status& status, const JobState& job);
  // Forgets the call. A deletion that is not planned yet is dropped with it.
  void Cancel(CallId call) {
    if (pending_ && pending_->call == call) pending_.reset();
  }

 private:
  struct Pending {
    CallId call = 0;
    v1::DeleteJobRequest request;
    bool planned = false;
  };

  std::optional<Pending> pending_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_JOB_DELETIONS_H_
