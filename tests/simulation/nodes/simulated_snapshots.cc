#include "tests/simulation/nodes/simulated_snapshots.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/disk/patient_directory.h"
#include "server/shard/snapshot/snapshot_points.h"

namespace kaon::simulation {

namespace {

// Growth of the journal that leads to a snapshot.
constexpr uint64_t kGrowth = 5 << 10;
constexpr absl::Duration kPiece = absl::Milliseconds(5);
constexpr absl::Duration kSlowPiece = absl::Milliseconds(600);
constexpr absl::Duration kRetry = absl::Milliseconds(200);

}  // namespace

SimulatedSnapshots::SimulatedSnapshots(World& world, SimulatedDirectory& disk,
                                       const journal::DirectoryId& id,
                                       const shard::RestoredSnapshot& restored, Options options)
    : world_(world),
      disk_(disk),
      options_(std::move(options)),
      files_(options_.schedule.has_value()
                 ? std::make_unique<disk::PatientDirectory>(disk.View(),
                                                            [this](const absl::Status&) {
                                                              lacked_room_ = true;
                                                              disk_.SetUnbounded();
                                                              return true;
                                                            })
                 : disk.View()),
      directory_(*files_, id),
      restored_position_(restored.position),
      rolled_back_to_(restored.rolled_back_to),
      restored_no_job_(restored.no_job),
      grown_from_(options_.appended_bytes),
      newest_(restored.position) {
  if (restored.position > 0) directory_.SetWhole(restored.position);
  if (rolled_back_to_ > 0 || restored_no_job_) GoOn(Stage::kSweep);
}

SimulatedSnapshots::~SimulatedSnapshots() = default;

bool SimulatedSnapshots::IsDue(const shard::ShardCore& core, uint64_t appended_bytes) {
  const std::optional<v1::StepRecord>& record = core.machine().applied_record();
  if (options_.schedule.has_value()) {
    return record.has_value() && record->plan().position() > newest_ &&
           options_.schedule->IsPoint(*record);
  }
  if (!core.machine().deleted_job().empty()) return record->plan().position() > newest_;
  due_ = due_ || (record.has_value() && record->plan().has_restore());
  return due_ || appended_bytes - grown_from_ >= kGrowth;
}

void SimulatedSnapshots::OnApplied(shard::ShardCore& core, uint64_t appended_bytes) {
  const bool is_deleted = !core.machine().deleted_job().empty();
  if (!core.machine().weights_loaded() && !is_deleted) return;
  if (!IsDue(core, appended_bytes)) return;
  const bool busy = next_ != nullptr || stage_ != Stage::kIdle;
  // With a schedule, one snapshot may wait for another; a snapshot of an older timeline no longer
  // waits.
  if (busy && !options_.schedule.has_value() && !is_deleted) return;
  auto freeze = core.Freeze();
  if (!freeze.ok()) {
    return world_.invariants().Violated(
        absl::StrCat(options_.name, " cannot freeze its state: ", freeze.status().ToString()));
  }
  next_ = *std::move(freeze);
  due_ = false;
  grown_from_ = appended_bytes;
  newest_ = core.machine().applied_position();
  if (!busy) GoOn(Stage::kCreate);
}

void SimulatedSnapshots::OnDurable(uint64_t position) {
  durable_position_ = std::max(durable_position_, position);
}

void SimulatedSnapshots::GoOn(Stage stage) {
  stage_ = stage == Stage::kIdle && next_ != nullptr ? Stage::kCreate : stage;
  if (stage_ == Stage::kIdle) return;
  // Some devices are slow with waiting operations.
  const bool slow = options_.schedule.has_value() && world_.Chance(0.05);
  world_.queue().After(world_.Between(absl::ZeroDuration(), slow ? kSlowPiece : kPiece),
                       [this, alive = std::weak_ptr<bool>(alive_)] {
                         if (!alive.expired()) Run();
                       });
}

void SimulatedSnapshots::Run() {
  if (lacked_room_ && !disk_.is_unbounded()) {
    world_.queue().After(kRetry, [this, alive = std::weak_ptr<bool>(alive_)] {
      if (!alive.expired()) Run();
    });
    return;
  }
  lacked_room_ = false;
  const uint64_t free_bytes = disk_.free_bytes();
  absl::StatusOr<Stage> next = Step();
  if (lacked_room_) disk_.SetFreeBytes(free_bytes);
  if (next.ok()) return GoOn(*next);
  const absl::Status status = GiveUp(next.status());
  // Later: this object does not outlive the process.
  if (status.ok()) return GoOn(Stage::kIdle);
  world_.queue().After(absl::ZeroDuration(), [this, status, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) options_.on_failed(status);
  });
}

absl::Status SimulatedSnapshots::GiveUp(const absl::Status& status) {
  const bool cancelled = absl::IsCancelled(status);
  if (!cancelled && !absl::IsResourceExhausted(status)) return status;
  world_.Trace(absl::StrCat(options_.name, ": snapshot given up: ", status.ToString()));
  writer_.reset();
  const absl::Status cleared = directory_.RemoveUnfinished();
  return absl::IsResourceExhausted(cleared) ? absl::OkStatus() : cleared;
}

absl::StatusOr<SimulatedSnapshots::Stage> SimulatedSnapshots::Step() {
  switch (stage_) {
    case Stage::kIdle:
      return Stage::kIdle;
    case Stage::kSweep: {
      if (restored_no_job_) {
        options_.truncate(restored_position_);
        KAON_RETURN_IF_ERROR(directory_.RemoveBefore(restored_position_));
        return Stage::kIdle;
      }
      KAON_RETURN_IF_ERROR(directory_.RemoveBetween(rolled_back_to_, restored_position_));
      return Stage::kIdle;
    }
    case Stage::kCreate: {
      KAON_ASSIGN_OR_RETURN(writer_, shard::SnapshotWriter::Create(directory_, std::move(next_),
                                                                   v1::CheckpointFile()));
      return Stage::kWrite;
    }
    case Stage::kWrite: {
      KAON_ASSIGN_OR_RETURN(const bool more, writer_->WriteSome());
      return more ? Stage::kWrite : Stage::kCommit;
    }
    case Stage::kCommit: {
      if (durable_position_ < writer_->position()) return Stage::kCommit;
      KAON_RETURN_IF_ERROR(writer_->Commit());
      return Stage::kTell;
    }
    case Stage::kTell:
      break;
  }
  return Tell();
}

absl::StatusOr<SimulatedSnapshots::Stage> SimulatedSnapshots::Tell() {
  const std::unique_ptr<shard::SnapshotWriter> writer = std::move(writer_);
  world_.Trace(
      absl::StrCat(options_.name, ": snapshot of position ", writer->position(), " is there"));
  ++world_.result().snapshots;
  const v1::ShardState& state = writer->facts().state;
  if (options_.on_snapshot != nullptr) {
    options_.on_snapshot(shard::PointOf(state), state.timeline());
  }
  if (state.applied_record().plan().has_rollback()) {
    const v1::SnapshotPoint& target = state.applied_record().plan().rollback().target();
    KAON_RETURN_IF_ERROR(directory_.RemoveBetween(target.position(), writer->position()));
  }
  if (shard::IsOfNoJob(state)) {
    options_.truncate(writer->position());
    KAON_RETURN_IF_ERROR(directory_.RemoveBefore(writer->position()));
    return Stage::kIdle;
  }
  if (directory_.oldest_kept() > 0) options_.truncate(directory_.oldest_kept());
  KAON_RETURN_IF_ERROR(directory_.Retain());
  return Stage::kIdle;
}

}  // namespace kaon::simulation
