#include "server/shard/snapshot/snapshot_points.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>

#include "proto/status_macros.h"
#include "server/disk/device_error.h"

namespace kaon::shard {

v1::SnapshotPoint PointOf(const v1::ShardState& state) {
  v1::SnapshotPoint point;
  point.set_position(state.applied_position());
  point.set_step(state.applied_step());
  *point.mutable_registration() = state.registration();
  *point.mutable_last_decision() = state.applied_record().decision();
  return point;
}

absl::StatusOr<std::vector<v1::SnapshotPoint>> ListPoints(SnapshotDirectory& directory,
                                                          uint64_t newest) {
  std::vector<v1::SnapshotPoint> points;
  KAON_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions, directory.List());
  uint64_t highest = newest;
  for (const uint64_t position : positions) {
    if (position > highest) continue;
    const absl::StatusOr<Snapshot> snapshot = directory.Load(position);
    // A snapshot unreadable today may be the state that other shards roll back to.
    if (disk::IsDeviceError(snapshot.status())) return snapshot.status();
    if (!snapshot.ok()) {
      LOG(ERROR) << SnapshotDirectory::IdOf(position)
                 << " cannot be rolled back to: " << snapshot.status();
      continue;
    }
    const v1::ShardState& state = snapshot->facts.state;
    // Earlier snapshots are of a deleted job.
    if (IsOfNoJob(state)) break;
    points.push_back(PointOf(state));
    const v1::StepPlan& plan = state.applied_record().plan();
    if (plan.has_restore()) break;
    if (plan.has_rollback()) highest = plan.rollback().target().position();
  }
  std::reverse(points.begin(), points.end());
  return points;
}

}  // namespace kaon::shard
