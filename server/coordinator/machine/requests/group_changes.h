// The change of a group, or of the job itself, that an admin asked for. It waits for the boundary
// between two steps, then for its entry to be applied. Pure; owned by StepMachine, one thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_GROUP_CHANGES_H_
#define KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_GROUP_CHANGES_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/agreement.pb.h"
#include "server/coordinator/machine/actions.h"
#include "server/coordinator/machine/job_state.h"
#include "server/coordinator/machine/membership.h"

namespace kaon::coordinator {

// Checks that the job, after `change`, accepts the shares that workers have begun the next step
// with. Requires a registration.
absl::Status CheckBegun(const v1::GroupChangeBody& change, const JobState& job,
                        const Membership& membership);

class GroupChanges {
 public:
  bool waits() const { return pending_.has_value(); }
  // Returns whether `request` repeats the change that waits or, if its caller is gone, the change
  // `under_way`. A request without an id repeats nothing.
  bool Repeats(const v1::SetGroupRequest& request, const v1::StepPlan& under_way) const;
  // ABORTED if the job has another revision or a change waits or is `under_way`; else the errors
  // of job::MakeGroupChange. Requires a registration.
  absl::Status Check(const v1::SetGroupRequest& request, const JobState& job,
                     const v1::StepPlan& under_way) const;
  // Makes `call` the one that waits. End answers the call before it.
  void Wait(CallId call, const v1::SetGroupRequest& request) { pending_ = Pending{call, request}; }
  // Returns the plan of the change that waits, but for what every plan has.
  absl::StatusOr<v1::StepPlan> Plan(const JobState& job, const Membership& membership) const;
  // Answers the call that waits, if one does.
  Actions End(const absl::Status& status, const JobState& job);
  // Forgets the call. A change that is not planned yet is dropped with it.
  void Cancel(CallId call) {
    if (pending_ && pending_->call == call) pending_.reset();
  }

 private:
  struct Pending {
    CallId call = 0;
    v1::SetGroupRequest request;
  };

  std::optional<Pending> pending_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_GROUP_CHANGES_H_
