#include "server/coordinator/machine_watch.h"

#include <glog/logging.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
#include "proto/ballot.h"
#include "server/coordinator/machine/entry_name.h"
#include "server/coordinator/machine/rollbacks.h"
#include "server/monitor/wall_clock.h"

namespace kaon::coordinator {

using monitor::Event;

void MachineWatch::Look(const StepMachine& machine) {
  LookAtHolder(machine);
  LookAtWorkers(machine);
  LookAtGradNorms(machine.grad_norms());
  // A standby coordinator answers with the holder's address, even if it once held a stopped job.
  const bool stopped = machine.IsHolder() && !machine.stopped().ok();
  if (stopped == stopped_) return;
  stopped_ = stopped;
  if (stopped) counts_.Add(Event::kJobStopped);
  health_.SetReason("job", stopped ? machine.stopped().ToString() : std::string());
}

void MachineWatch::LookAtHolder(const StepMachine& machine) {
  if (machine.IsHolder() == holds_) return;
  holds_ = machine.IsHolder();
  counts_.Add(holds_ ? Event::kTakeover : Event::kHolderReplaced);
  // The phase names the new holder if a shard has reported it.
  if (holds_) {
    LOG(INFO) << "holds the shards from now on, ballot "
              << proto::ToString(machine.Snapshot().ballot);
  } else {
    LOG(WARNING) << "holds the shards no more: " << machine.Snapshot().phase;
    // The new holder now watches the checkpoints.
    health_.SetReason(kCheckpointCause, "");
  }
}

void MachineWatch::LookAtWorkers(const StepMachine& machine) {
  if (machine.lost_workers() == lost_) return;
  for (const auto& [rank, why] : machine.lost_workers()) {
    if (lost_.count(rank) > 0) continue;
    counts_.Add(Event::kWorkerLost);
    LOG(WARNING) << "rank " << rank << " is lost: the job goes on without it"
                 << (why.empty() ? "" : "; ") << why;
  }
  lost_ = machine.lost_workers();
}

void MachineWatch::LookAtGradNorms(const GradNormWatch& norms) {
  if (norms.total() == outliers_) return;
  outliers_ = norms.total();
  for (const GradNormOutlier& outlier : norms.newest()) {
    counts_.Add(Event::kGradNormOutlier);
    LOG(WARNING) << "step " << outlier.step << ": gradient norm " << outlier.norm << " of rank "
                 << outlier.rank << " is " << outlier.norm / outlier.median_of_others
                 << " times the median of the others', " << outlier.median_of_others
                 << "; usual for it is " << outlier.usual_multiple << " times";
  }
}

void MachineWatch::OnSent(const v1::CoordinatorToShard& message) {
  if (message.has_plan()) {
    const v1::StepPlan& plan = message.plan();
    const bool counted = plan.position() == reopened_position_ && plan.round() == reopened_round_ &&
                         proto::Compare(plan.ballot(), reopened_ballot_) == 0;
    if (plan.round() <= 1 || counted) return;
    counts_.Add(Event::kRoundReopened);
    reopened_position_ = plan.position();
    reopened_ballot_ = plan.ballot();
    reopened_round_ = plan.round();
  } else if (message.has_decision()) {
    const v1::StepPlan& plan = message.decision().plan();
    decision_times_.Note(plan.timeline(), plan.position(), monitor::UnixMillisNow());
    if (plan.position() <= decided_position_) return;
    decided_position_ = plan.position();
    monitor::NoteEntry(plan);
    meter_.Note(message.decision(), monitor::UnixMillisNow(), SteadyNow());
    if (plan.has_restore()) counts_.Add(Event::kRestore);
    if (plan.has_rollback()) counts_.Add(Event::kRollback);
    if (plan.has_job_deletion()) counts_.Add(Event::kJobDeletion);
    // The job now has another state, or is gone.
    if (ReplacesState(plan)) health_.SetReason(kCheckpointCause, "");
    if (plan.has_group_change()) counts_.Add(Event::kGroupChange);
    const std::string line = step_log_.Line(message.decision(), NameOfEntry(plan), SteadyNow());
    LOG_IF(INFO, !line.empty()) << line;
  }
}

void MachineWatch::OnCheckpoint(const std::string& id, const absl::Status& status) {
  if (status.ok()) {
    counts_.Add(Event::kCheckpointCreated);
    health_.SetReason(kCheckpointCause, "");
    return;
  }
  counts_.Add(Event::kCheckpointFailed);
  LOG(WARNING) << "checkpoint " << id << " is given up: " << status;
  if (!absl::IsDataLoss(status)) return;
  health_.SetReason(kCheckpointCause,
                    absl::StrCat("checkpoint ", id, " is given up: ", status.message()));
}

}  // namespace kaon::coordinator
