#include "server/shard/restore_check.h"

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/shard/snapshot/checkpoint_restore.h"
#include "server/shard/snapshot/snapshot_points.h"

namespace kaon::shard {

absl::Status CheckCheckpoint(disk::Directory& files, const RestoreCheck& check) {
  PassFailpoint(Failpoint::restore_check_begin);
  // The mark comes first: no retention removes what is there afterwards.
  KAON_RETURN_IF_ERROR(checkpoint::MarkRestore(files, check.mark));
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointRestore> state,
                        CheckpointRestore::Open(files, check.restore));
  KAON_RETURN_IF_ERROR(state->Check(check.shard));
  PassFailpoint(Failpoint::restore_checked);
  return absl::OkStatus();
}

absl::Status CheckSnapshot(SnapshotDirectory& directory, const v1::SnapshotPoint& target) {
  KAON_ASSIGN_OR_RETURN(const Snapshot snapshot, directory.Load(target.position()));
  if (PointOf(snapshot.facts.state).SerializeAsString() != target.SerializeAsString()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the snapshot of position ", target.position(), " is of step ",
                     snapshot.facts.state.applied_step(), ", or of another job, than step ",
                     target.step(), " to roll back to"));
  }
  return directory.Verify(target.position());
}

}  // namespace kaon::shard
