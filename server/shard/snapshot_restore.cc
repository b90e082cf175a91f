#include "server/shard/snapshot_restore.h"

#include "absl/strings/str_cat.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/disk/device_error.h"
#include "server/shard/snapshot/snapshot_tensors.h"

namespace kaon::shard {

namespace {

absl::Status RestoreOne(SnapshotDirectory& directory, uint64_t position,
                        const RestoreShard& restore, RestoredSnapshot& restored) {
  KAON_ASSIGN_OR_RETURN(const Snapshot snapshot, directory.Load(position));
  PassFailpoint(Failpoint::snapshot_found);
  SnapshotTensors reader(directory, snapshot);
  KAON_RETURN_IF_ERROR(restore(
      snapshot, [&reader](const v1::CheckpointTensor& tensor, uint64_t offset,
                          absl::Span<char> to) { return reader.Read(tensor, offset, to); }));
  PassFailpoint(Failpoint::snapshot_read_back);
  restored.position = position;
  restored.step = snapshot.facts.state.applied_step();
  restored.timeline = snapshot.facts.state.timeline();
  const v1::StepPlan& plan = snapshot.facts.state.applied_record().plan();
  restored.no_job = IsOfNoJob(snapshot.facts.state);
  restored.rolled_back_to = plan.rollback().target().position();
  for (const v1::CheckpointFile& file : snapshot.part.files()) restored.bytes += file.size();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RestoredSnapshot> RestoreNewest(SnapshotDirectory& directory,
                                               const RestoreShard& restore) {
  RestoredSnapshot restored;
  KAON_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions, directory.List());
  for (const uint64_t position : positions) {
    const absl::Status status = RestoreOne(directory, position, restore, restored);
    if (absl::IsResourceExhausted(status) || disk::IsDeviceError(status)) return status;
    if (status.ok()) {
      directory.SetWhole(position);
      break;
    }
    restored.skipped.push_back(
        absl::StrCat(SnapshotDirectory::IdOf(position), " is not used: ", status.message()));
  }
  return restored;
}

}  // namespace kaon::shard
