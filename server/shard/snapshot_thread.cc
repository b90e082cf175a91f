#include "server/shard/snapshot_thread.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/steady_clock.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/disk/device_error.h"
#include "server/disk/patient_directory.h"
#include "server/shard/admission.h"
#include "server/shard/snapshot/snapshot_points.h"
#include "server/shard/snapshot/snapshot_writer.h"

namespace kaon::shard {

SnapshotThread::SnapshotThread(std::unique_ptr<disk::Directory> directory,
                               const journal::DirectoryId& id, const RestoredSnapshot& restored,
                               Options options)
    : options_(std::move(options)),
      newest_(restored.position),
      restored_position_(restored.position),
      restored_timeline_(std::max<uint64_t>(1, restored.timeline)),
      rolled_back_to_(restored.rolled_back_to),
      restored_no_job_(restored.no_job),
      files_(options_.schedule.has_value()
                 ? std::make_unique<disk::PatientDirectory>(
                       std::move(directory),
                       [this](const absl::Status& status) { return AwaitRoom(status); })
                 : std::move(directory)),
      directory_(*files_, id),
      grown_from_(options_.appended_bytes),
      replayed_bytes_(options_.replayed_bytes) {
  CountBytes();
  MutexLock lock(mu_);
  if (restored.position > 0) directory_.SetWhole(restored.position);
  status_.set_position(restored.position);
  status_.set_step(restored.step);
  status_.set_bytes(restored.bytes);
  status_.set_problem(absl::StrJoin(restored.skipped, "; "));
  thread_ = std::thread([this] { Run(); });
}

SnapshotThread::~SnapshotThread() { Stop(); }

void SnapshotThread::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

uint64_t SnapshotThread::Threshold(const ShardCore& core) const {
  if (options_.journal_bytes > 0) return options_.journal_bytes;
  uint64_t state_bytes = 0;
  for (const StoredParameter& parameter : core.parameters()->parameters()) {
    state_bytes += parameter.state_bytes;
  }
  return SnapshotJournalBytes(state_bytes);
}

bool SnapshotThread::IsDue(const ShardCore& core, uint64_t appended_bytes) {
  const std::optional<v1::StepRecord>& record = core.machine().applied_record();
  if (options_.schedule.has_value()) {
    return record.has_value() && record->plan().position() > newest_ &&
           options_.schedule->IsPoint(*record);
  }
  if (!core.machine().deleted_job().empty()) return record->plan().position() > newest_;
  // Until there is one, a restart reads the checkpoint again, which may be removed.
  due_ = due_ || (record.has_value() && record->plan().has_restore());
  return due_ || appended_bytes - grown_from_ + replayed_bytes_ >= Threshold(core);
}

void SnapshotThread::OnStarted(ShardCore& core, uint64_t appended_bytes) {
  OnDurable(core.machine().applied_position());
  // Without a schedule, only a restore and the first job after a deletion begin a timeline.
  due_ = !options_.schedule.has_value() && core.machine().timeline() > restored_timeline_;
  const bool is_deleted = !core.machine().deleted_job().empty();
  if (due_ || is_deleted || options_.schedule.has_value()) OnApplied(core, appended_bytes);
}

void SnapshotThread::OnApplied(ShardCore& core, uint64_t appended_bytes) {
  {
    MutexLock lock(mu_);
    due_ = due_ || std::exchange(restore_lacks_one_, false);
  }
  const bool is_deleted = !core.machine().deleted_job().empty();
  if (!core.machine().weights_loaded() && !is_deleted) return;
  if (!IsDue(core, appended_bytes)) return;
  MutexLock lock(mu_);
  // With a schedule, a snapshot may wait for another, and one of an older timeline for nothing. A
  // deletion has ended the snapshot in progress.
  const bool may_wait = options_.schedule.has_value() || is_deleted;
  if (stopping_ || (status_.in_progress() && !may_wait)) return;
  if (!BeginLocked(core).ok()) return;
  of_restore_ = std::exchange(due_, false);
  if (of_restore_) PassFailpoint(Failpoint::restore_snapshot_frozen);
  grown_from_ = appended_bytes;
  replayed_bytes_ = 0;
  newest_ = core.machine().applied_position();
}

absl::Status SnapshotThread::BeginLocked(ShardCore& core) {
  absl::StatusOr<std::unique_ptr<StateFreeze>> freeze = core.Freeze();
  if (!freeze.ok()) {
    status_.set_problem(std::string(freeze.status().message()));
    return freeze.status();
  }
  PassFailpoint(Failpoint::snapshot_frozen);
  next_ = *std::move(freeze);
  status_.set_in_progress(true);
  wake_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<bool> SnapshotThread::TakeForDrain(ShardCore& core, uint64_t attempt) {
  MutexLock lock(mu_);
  if (status_.in_progress()) return false;
  const uint64_t applied = core.machine().applied_position();
  if (!core.machine().weights_loaded() || status_.position() == applied) return true;
  if (drained_by_ == attempt && newest_ == applied) {
    return absl::ResourceExhaustedError(absl::StrCat("no snapshot: ", status_.problem()));
  }
  KAON_RETURN_IF_ERROR(BeginLocked(core));
  drained_by_ = attempt;
  newest_ = applied;
  return false;
}

bool SnapshotThread::AwaitEndLocked(absl::Time deadline) {
  while (status_.in_progress() && !stopping_) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return false;
    wake_.WaitFor(mu_, left);
  }
  return !stopping_;
}

void SnapshotThread::TakeLast(ShardCore& core, absl::Time deadline) {
  PassFailpoint(Failpoint::stop_begin);
  MutexLock lock(mu_);
  if (!AwaitEndLocked(deadline) || !core.machine().weights_loaded()) return;
  // With a schedule, a snapshot of this shard alone would push out one that all shards have.
  if (options_.schedule.has_value()) return;
  if (status_.position() == core.machine().applied_position()) return;
  if (!BeginLocked(core).ok()) return;
  PassFailpoint(Failpoint::stop_snapshot_frozen);
  if (!AwaitEndLocked(deadline)) LOG(WARNING) << "no time for a last snapshot";
  PassFailpoint(Failpoint::stop_snapshot_over);
}

void SnapshotThread::OnDurable(uint64_t position) {
  MutexLock lock(mu_);
  durable_position_ = std::max(durable_position_, position);
  wake_.NotifyAll();
}

v1::SnapshotStatus SnapshotThread::Status() const {
  MutexLock lock(mu_);
  return status_;
}

uint64_t SnapshotThread::disk_bytes() const {
  MutexLock lock(mu_);
  return disk_bytes_;
}

std::string SnapshotThread::read_only_reason() const {
  MutexLock lock(mu_);
  return read_only_reason_;
}

bool SnapshotThread::is_stopping() const {
  MutexLock lock(mu_);
  return stopping_;
}

bool SnapshotThread::AwaitDurable(uint64_t position) {
  MutexLock lock(mu_);
  while (durable_position_ < position && !stopping_) wake_.Wait(mu_);
  return durable_position_ >= position;
}

bool SnapshotThread::AwaitRoom(const absl::Status& status) {
  if (options_.on_room) options_.on_room(status);
  MutexLock lock(mu_);
  status_.set_problem(std::string(status.message()));
  read_only_reason_ = status_.problem();
  const absl::Time retry_at = SteadyNow() + options_.retry_delay;
  while (!stopping_ && !impatient_ && SteadyNow() < retry_at) {
    wake_.WaitFor(mu_, retry_at - SteadyNow());
  }
  return !stopping_ && !impatient_;
}

void SnapshotThread::Fail(const absl::Status& status) {
  // The content of the disk is unknown now: a restart finds out.
  if (!options_.on_failed) LOG(FATAL) << "snapshot: " << status;
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  options_.on_failed(status);
}

void SnapshotThread::Run() {
  if (rolled_back_to_ > 0) {
    const absl::Status removed = directory_.RemoveBetween(rolled_back_to_, restored_position_);
    if (!removed.ok() && !absl::IsResourceExhausted(removed)) Fail(removed);
  }
  if (restored_no_job_) {
    // The last process may have ended before it removed the files.
    const absl::Status removed = RemoveDeletedJob(restored_position_);
    if (!removed.ok() && !absl::IsResourceExhausted(removed)) Fail(removed);
    CountBytes();
  }
  while (true) {
    std::unique_ptr<StateFreeze> freeze;
    {
      MutexLock lock(mu_);
      while (next_ == nullptr && !stopping_) wake_.Wait(mu_);
      if (stopping_) break;
      freeze = std::move(next_);
    }
    const absl::Status status = Write(std::move(freeze));
    // Decided before Report: a caller that reads the report may stop the thread.
    const bool goes_on = status.ok() || MayGiveUp(status);
    Report(status);
    if (!goes_on) Fail(status);
  }
  MutexLock lock(mu_);
  // The snapshot was given up before the thread began to write it.
  next_.reset();
  status_.set_in_progress(false);
}

bool SnapshotThread::MayGiveUp(const absl::Status& status) const {
  if (absl::IsCancelled(status)) return true;
  MutexLock lock(mu_);
  if (options_.schedule.has_value()) {
    // Votes would wait for the snapshot for ever: every retry was made.
    return absl::IsResourceExhausted(status) && (impatient_ || stopping_);
  }
  // A damaged snapshot of the same position exists, which the shard did not start from.
  return absl::IsResourceExhausted(status) || absl::IsAlreadyExists(status);
}

void SnapshotThread::StopWaiting() {
  MutexLock lock(mu_);
  impatient_ = true;
  wake_.NotifyAll();
}

absl::Status SnapshotThread::Write(std::unique_ptr<StateFreeze> freeze) {
  const absl::Time start = SteadyNow();
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<SnapshotWriter> writer,
                        SnapshotWriter::Create(directory_, std::move(freeze), options_.written_by));
  PassFailpoint(Failpoint::snapshot_write_begin);
  for (bool more = true; more;) {
    if (is_stopping()) return absl::CancelledError("the shard is shutting down");
    KAON_ASSIGN_OR_RETURN(more, writer->WriteSome());
    PassFailpoint(Failpoint::snapshot_piece_written);
  }
  if (!AwaitDurable(writer->position())) {
    return absl::CancelledError("the shard is shutting down");
  }
  PassFailpoint(Failpoint::snapshot_decision_durable);
  KAON_RETURN_IF_ERROR(writer->Commit());
  const double seconds = absl::ToDoubleSeconds(SteadyNow() - start);
  {
    MutexLock lock(mu_);
    status_.set_position(writer->position());
    status_.set_step(writer->step());
    status_.set_bytes(writer->file_bytes());
    status_.set_seconds(seconds);
    if (of_restore_) PassFailpoint(Failpoint::restore_snapshot_committed);
  }
  // Mode interval(K) takes a snapshot each K / 2 steps, and kaonctl status has the newest.
  LOG_EVERY_T(INFO, 600) << "snapshot of position " << writer->position() << ", step "
                         << writer->step() << ": " << writer->file_bytes() << " bytes in "
                         << seconds << " s";
  const v1::ShardState& state = writer->facts().state;
  if (options_.on_snapshot) options_.on_snapshot(PointOf(state), state.timeline());
  if (state.applied_record().plan().has_rollback()) {
    // Not earlier: a restart needs the target as long as it reads the rollback itself.
    const v1::SnapshotPoint& target = state.applied_record().plan().rollback().target();
    KAON_RETURN_IF_ERROR(directory_.RemoveBetween(target.position(), writer->position()));
  }
  if (IsOfNoJob(state)) return RemoveDeletedJob(writer->position());
  if (directory_.oldest_kept() > 0) options_.truncate(directory_.oldest_kept());
  return directory_.Retain();
}

// The snapshot of the deletion is durable: no restart reads anything older.
absl::Status SnapshotThread::RemoveDeletedJob(uint64_t position) {
  options_.truncate(position);
  return directory_.RemoveBefore(position);
}

void SnapshotThread::CountBytes() {
  const absl::StatusOr<uint64_t> bytes = directory_.Bytes();
  if (disk::IsDeviceError(bytes.status())) Fail(bytes.status());
  MutexLock lock(mu_);
  disk_bytes_ = bytes.value_or(disk_bytes_);
}

void SnapshotThread::Report(const absl::Status& status) {
  bool has_room_again = false;
  if (status.ok()) {
    MutexLock lock(mu_);
    has_room_again = !std::exchange(read_only_reason_, "").empty();
  }
  if (has_room_again && options_.on_room) options_.on_room(status);
  if (!status.ok()) {
    LOG_IF(WARNING, !absl::IsCancelled(status)) << "snapshot: " << status;
    const absl::Status cleared = directory_.RemoveUnfinished();
    LOG_IF(WARNING, !cleared.ok()) << "snapshot: " << cleared;
    if (disk::IsDeviceError(cleared)) Fail(cleared);
  }
  CountBytes();
  MutexLock lock(mu_);
  if (!status.ok() && of_restore_) restore_lacks_one_ = true;
  status_.set_in_progress(next_ != nullptr);
  wake_.NotifyAll();
  status_.set_problem(status.ok() ? std::string() : std::string(status.message()));
}

}  // namespace kaon::shard
