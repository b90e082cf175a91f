// A shard that goes back to the state of a snapshot of its own: checked before it votes, loaded
// once it is decided, the same way whether a coordinator or the journal says so.
#include "job/settings.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/shard/shard_core.h"
#include "server/shard/snapshot/snapshot_tensors.h"

namespace kaon::shard {

void ShardCore::ReserveRollback(const ReserveJob& reserve) {
  // It would be checked behind what is written; the coordinator has given that up.
  checkpoint_.reset();
  // Nor are snapshots of what comes after the target of use to anybody any more; the next that is
  // whole would push the target out.
  freezes_.EndAll();
  const v1::SnapshotPoint& target = reserve.plan.rollback().target();
  host_.CheckRollback(target, reserve.generation);
}

absl::Status ShardCore::ApplyRollback(const v1::StepPlan& plan) {
  const v1::SnapshotPoint& target = plan.rollback().target();
  // What is being written of the state that goes is of no use to anybody.
  freezes_.EndAll();
  WithdrawGradients();
  publisher_.Rewind(plan.timeline());
  KAON_RETURN_IF_ERROR(
      host_.WithSnapshots([this, &target](SnapshotDirectory& directory) -> absl::Status {
        KAON_ASSIGN_OR_RETURN(const Snapshot snapshot, directory.Load(target.position()));
        SnapshotTensors tensors(directory, snapshot);
        return LoadTensors(snapshot.part, target.step(),
                           [&tensors](const v1::CheckpointTensor& tensor, absl::Span<char> to) {
                             return tensors.Read(tensor, to);
                           });
      }));
  for (StoredParameter& parameter : parameters_->parameters()) parameter.trace = {};
  const v1::RegisterBody registration = job::RegistrationAfter(plan.rollback());
  parameters_->SetGroups(registration);
  accumulator_.Adopt(registration);
  sums_.clear();
  return absl::OkStatus();
}

}  // namespace kaon::shard
