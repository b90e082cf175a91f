// The restore of a checkpoint that an admin asked for. It waits for the entry that is being
// applied, then for its own entry, which begins another timeline (protocol.md section 2.2). Pure;
// owned by StepMachine, one thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_RESTORES_H_
#define KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_RESTORES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "server/checkpoint/manifest.h"
#include "server/coordinator/machine/actions.h"
#include "server/coordinator/machine/job_state.h"
#include "server/coordinator/machine/placement.h"
#include "server/coordinator/machine/requests/restore_order.h"

namespace kaon::coordinator {

class Restores {
 public:
  // Places a job that is restored where none runs within `limits`.
  explicit Restores(const PlacementLimits& limits) : limits_(limits) {}

  bool waits() const { return pending_.has_value(); }
  bool WaitsForItsPlan() const { return pending_ && !pending_->planned; }
  // Returns whether `order` repeats the restore that waits or, if its caller is gone, the restore
  // `under_way`. An order without a request id repeats nothing.
  bool Repeats(const RestoreOrder& order, const v1::StepPlan& under_way) const;
  // Returns whether the newest entry of the log is the restore that `order` asks for.
  bool IsDone(const RestoreOrder& order, const JobState& job) const;
  // ABORTED if another restore waits or is `under_way`. UNAVAILABLE if the job went to another
  // timeline after the log was read for `order`. FAILED_PRECONDITION if the checkpoint is not for
  // the job. RESOURCE_EXHAUSTED if it does not fit on the shards.
  absl::Status Check(const RestoreOrder& order, const JobState& job,
                     const v1::StepPlan& under_way) const;
  // Makes `call` the one that waits, for a plan or, once `planned`, for the entry. End answers the
  // call before it.
  void Wait(CallId call, const RestoreOrder& order, bool planned) {
    pending_ = Pending{call, order, planned};
  }
  // Returns the plan of the restore that waits, but for what every plan has. Errors are those of
  // Check. On success the restore is planned.
  absl::StatusOr<v1::StepPlan> Plan(const JobState& job);
  // Answers the call that waits, if one does.
  Actions End(const absl::Status& status, const JobState& job);
  // Forgets the call. A restore that is not planned yet is dropped with it.
  void Cancel(CallId call) {
    if (pending_ && pending_->call == call) pending_.reset();
  }

  // Notes the checkpoint of a restore that was decided: the job went on from it in `timeline`.
  void Decided(const v1::RestoreBody& restore, uint64_t timeline) {
    restored_ = {restore.checkpoint(), timeline};
  }
  // Returns the checkpoints that must stay on disk: the last one that this coordinator saw the job
  // go on from, and the one that waits.
  std::vector<checkpoint::RestoredCheckpoint> InUse(const JobState& job) const;

 private:
  struct Pending {
    CallId call = 0;
    RestoreOrder order;
    bool planned = false;
  };

  absl::StatusOr<v1::StepPlan> PlanOf(const RestoreOrder& order, const JobState& job) const;

  const PlacementLimits limits_;
  std::optional<Pending> pending_;
  std::optional<checkpoint::RestoredCheckpoint> restored_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_RESTORES_H_
