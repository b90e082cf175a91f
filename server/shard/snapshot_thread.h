// Takes snapshots of a shard while it goes on. Freezes the state once the journal has grown enough,
// or at the points of a schedule, and writes it on a thread of its own. The journal may then forget
// all that the older of the two newest snapshots holds. After a job's deletion it takes one without
// tensors, which replaces all older ones. A full disk only delays: the begun snapshot
// is removed, and the next trigger tries again. With a schedule votes wait for the snapshot, so
// each write is retried until there is room. Any other failure ends the process: the next start
// recovers as after a crash. Owned by the shard's composition root. Outlives the run of its
// StepLoop; its core and its journal outlive it.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_THREAD_H_
#define KAON_SERVER_SHARD_SNAPSHOT_THREAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/checkpoint.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/mutex.h"
#include "server/disk/disk.h"
#include "server/journal/interval_schedule.h"
#include "server/shard/shard_core.h"
#include "server/shard/snapshot/snapshot_directory.h"
#include "server/shard/snapshot/state_freeze.h"
#include "server/shard/snapshot_restore.h"

namespace kaon::shard {

class SnapshotThread {
 public:
  struct Options {
    // Bytes of journal growth that lead to a snapshot; 0 = 256 MiB, or twice the state if that is
    // more.
    uint64_t journal_bytes = 0;
    // Mode INTERVAL: takes snapshots at these points, not by the journal's growth.
    std::optional<journal::IntervalSchedule> schedule;
    // Tells that a snapshot is durable, which was taken in that timeline. Any thread calls it.
    std::function<void(const v1::SnapshotPoint& snapshot, uint64_t timeline)> on_snapshot;
    // With a schedule: gets the error of each write that finds the disk full, and OK for the next
    // whole snapshot. Runs on the snapshot thread, and must not block.
    std::function<void(const absl::Status& status)> on_room;
    // Time between two tries of a full disk, with a schedule.
    absl::Duration retry_delay = absl::Milliseconds(200);
    // Bytes of the journal when the thread starts, and those of them newer than the snapshot.
    uint64_t appended_bytes = 0;
    uint64_t replayed_bytes = 0;
    // Build, backend and device_class of the writer.
    v1::CheckpointFile written_by;
    // Lets the journal forget all before the decision of `position`. Any thread calls it.
    std::function<void(uint64_t position)> truncate;
    // Ends the process. Tests replace it; the thread writes nothing more once it returns.
    std::function<void(const absl::Status& status)> on_failed;
  };

  // Takes ownership of `directory`, whose identity is `id`. `restored` is the snapshot that the
  // shard started from.
  SnapshotThread(std::unique_ptr<disk::Directory> directory, const journal::DirectoryId& id,
                 const RestoredSnapshot& restored, Options options);
  // Calls Stop.
  ~SnapshotThread();

  // Step thread.

  // Tells that the replay ended: its entries are durable. Takes a snapshot if votes wait for one of
  // the newest entry, or if the replay read a checkpoint: no later restart shall need that.
  void OnStarted(ShardCore& core, uint64_t appended_bytes);
  // Tells that an entry has taken effect, and how many bytes the journal has appended.
  void OnApplied(ShardCore& core, uint64_t appended_bytes);
  // Returns whether a snapshot of the newest entry is whole, so that a restart replays nothing.
  // Begins one in the first call with this `attempt`. Returns why it cannot be written. Not for a
  // schedule.
  absl::StatusOr<bool> TakeForDrain(ShardCore& core, uint64_t attempt);
  // Tells that the decision of `position`, and all before it, are durable in the journal. Any
  // thread.
  void OnDurable(uint64_t position);

  // Any thread.

  v1::SnapshotStatus Status() const;
  // Returns the bytes of all snapshots on disk.
  uint64_t disk_bytes() const;
  // Returns why votes wait, while a scheduled snapshot finds the disk full; else empty.
  std::string read_only_reason() const;

  // Takes the last snapshot of a shard that ends, so that its next start replays little. Blocks
  // until the snapshot in progress ends, then takes another if an entry was applied since. Gives up
  // at `deadline`. Must be called once no step is applied any more, before Stop.
  void TakeLast(ShardCore& core, absl::Time deadline);

  // Gives up, from now on, a snapshot that finds the disk full, with a schedule too. The step
  // thread may wait for that snapshot, and the end of the shard waits for the step thread.
  void StopWaiting();

  // Gives up the snapshot in progress and joins the thread. Idempotent; one thread calls it.
  void Stop();

 private:
  void Run();
  // Writes one whole snapshot. CANCELLED: stopped.
  absl::Status Write(std::unique_ptr<StateFreeze> freeze);
  // Removes what `position`, the deletion of a job, made useless.
  absl::Status RemoveDeletedJob(uint64_t position);
  // Returns whether the shard goes on without a snapshot that ended with `status`.
  bool MayGiveUp(const absl::Status& status) const;
  bool AwaitDurable(uint64_t position);
  bool is_stopping() const;
  void Report(const absl::Status& status);
  // Sets what disk_bytes() returns from now on.
  void CountBytes();
  // Returns whether no snapshot is being written any more.
  bool AwaitEndLocked(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status BeginLocked(ShardCore& core) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t Threshold(const ShardCore& core) const;
  // Requires that the shard has weights. Step thread.
  bool IsDue(const ShardCore& core, uint64_t appended_bytes);
  // Blocks until the disk is to be tried again; false: give up.
  bool AwaitRoom(const absl::Status& status);
  // Ends the process through on_failed.
  void Fail(const absl::Status& status);

  const Options options_;
  // Position of the newest snapshot that is on disk, begun, or waiting. Step thread.
  uint64_t newest_;
  // Facts of the snapshot that the shard started from.
  const uint64_t restored_position_;
  const uint64_t restored_timeline_;
  const uint64_t rolled_back_to_;
  const bool restored_no_job_;
  // Used by the thread once it runs.
  const std::unique_ptr<disk::Directory> files_;
  SnapshotDirectory directory_;

  // Step thread. Bytes of the journal when growth began to count.
  uint64_t grown_from_;
  // A snapshot is due, however little the journal has grown.
  bool due_ = false;
  // Growth before that: bytes that the start replayed.
  uint64_t replayed_bytes_;
  // Attempt of the newest drain for which a snapshot was begun.
  std::optional<uint64_t> drained_by_;

  mutable Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool impatient_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<StateFreeze> next_ ABSL_GUARDED_BY(mu_);
  // The snapshot in progress is the first since a restore.
  bool of_restore_ ABSL_GUARDED_BY(mu_) = false;
  // The first snapshot since a restore was given up: the next entry leads to another.
  bool restore_lacks_one_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t durable_position_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t disk_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // Empty unless a write waits for room, or gave up and no snapshot has succeeded since.
  std::string read_only_reason_ ABSL_GUARDED_BY(mu_);
  v1::SnapshotStatus status_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_THREAD_H_
