// Takes snapshots of a shard while it goes on: freezes the state once the journal has grown by so
// much, or at the points of a schedule, writes it on a thread of its own, and lets the journal
// forget what the older of the two newest stands for. A full disk only delays: what was begun is
// removed, and the next trigger tries again; by a schedule, whose votes wait for it, each write is
// tried until there is room. Any other failure ends the process (recovery path = crash path). Owned
// by the shard's composition root, longer than its StepLoop runs and shorter than its core and its
// journal live.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_THREAD_H_
#define KAON_SERVER_SHARD_SNAPSHOT_THREAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
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
    // Growth of the journal that leads to a snapshot; 0 = 256 MiB, or twice the state if that is
    // more.
    uint64_t journal_bytes = 0;
    // Mode INTERVAL: these points, instead of the journal's growth.
    std::optional<journal::IntervalSchedule> schedule;
    // One that was taken in that timeline is durable. Any thread.
    std::function<void(const v1::SnapshotPoint& snapshot, uint64_t timeline)> on_snapshot;
    // By a schedule: of each write that finds the disk full, and, OK, of the next snapshot that is
    // whole. Runs on the thread, and must not block.
    std::function<void(const absl::Status& status)> on_room;
    // How often a full disk is tried again by a schedule.
    absl::Duration retry_delay = absl::Milliseconds(200);
    // Of the journal when the thread starts, and how much of it is newer than the snapshot.
    uint64_t appended_bytes = 0;
    uint64_t replayed_bytes = 0;
    // Who writes: build, backend and device_class.
    v1::CheckpointFile written_by;
    // The journal may forget what is before the decision of `position`. Any thread.
    std::function<void(uint64_t position)> truncate;
    // Ends the process; tests replace it, and nothing more is written once it returns.
    std::function<void(const absl::Status& status)> on_failed;
  };

  // `directory`, whose identity is `id`, is used by nobody else; `restored` is what the shard
  // started from.
  SnapshotThread(std::unique_ptr<disk::Directory> directory, const journal::DirectoryId& id,
                 const RestoredSnapshot& restored, Options options);
  // Stops.
  ~SnapshotThread();

  // Step thread.

  // What was replayed is durable. Votes may wait for a snapshot of its newest entry; and a restart
  // that read a checkpoint again must be the last to need it.
  void OnStarted(ShardCore& core, uint64_t appended_bytes);
  // An entry has taken effect; `appended_bytes` is the journal's.
  void OnApplied(ShardCore& core, uint64_t appended_bytes);
  // The journal holds that decision, and all before it, durably. Any thread.
  void OnDurable(uint64_t position);

  // Any thread.

  v1::SnapshotStatus Status() const;
  // Of all snapshots on disk.
  uint64_t disk_bytes() const;
  // By a schedule: why votes wait, while one finds the disk full; empty when all is well.
  std::string read_only_reason() const;

  // What a shard that is asked to end leaves behind, so that it starts again with little to replay:
  // waits for the snapshot that is being written, and takes a last one if anything was applied
  // since. Gives up at `deadline`. Once no step is applied any more, before Stop.
  void TakeLast(ShardCore& core, absl::Time deadline);

  // From now on what finds the disk full is given up, by a schedule too: the step thread may wait
  // for it, and a shard that is asked to end for the step thread.
  void StopWaiting();

  // Gives up what is being written and joins the thread. Idempotent; by one thread.
  void Stop();

 private:
  void Run();
  // Writes one snapshot to its end. CANCELLED when stopped.
  absl::Status Write(std::unique_ptr<StateFreeze> freeze);
  // Whether the shard goes on without a snapshot that ended so.
  bool MayGiveUp(const absl::Status& status) const;
  bool AwaitDurable(uint64_t position);
  bool is_stopping() const;
  void Report(const absl::Status& status);
  // What disk_bytes() says from now on.
  void CountBytes();
  // Whether none is being written any more.
  bool AwaitEndLocked(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status BeginLocked(ShardCore& core) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t Threshold(const ShardCore& core) const;
  // Of a shard with weights. Step thread.
  bool IsDue(const ShardCore& core, uint64_t appended_bytes);
  // False to give up.
  bool AwaitRoom(const absl::Status& status);
  // For good.
  void Fail(const absl::Status& status);

  const Options options_;
  // Of the newest that is there, was begun, or waits. Step thread.
  uint64_t newest_;
  // What the shard started from.
  const uint64_t restored_position_;
  const uint64_t restored_timeline_;
  const uint64_t rolled_back_to_;
  // Of the thread, once it runs.
  const std::unique_ptr<disk::Directory> files_;
  SnapshotDirectory directory_;

  // Step thread. What the journal had when growth began to count, and growth before that.
  uint64_t grown_from_;
  // One is to be taken however little the journal has grown.
  bool due_ = false;
  uint64_t replayed_bytes_;

  mutable Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool impatient_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<StateFreeze> next_ ABSL_GUARDED_BY(mu_);
  // That which is being written is the first since a restore.
  bool of_restore_ ABSL_GUARDED_BY(mu_) = false;
  // The first since a restore was given up: the next entry leads to another.
  bool restore_lacks_one_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t durable_position_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t disk_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // Empty unless a write waits, or waited and was given up, and none has succeeded since.
  std::string read_only_reason_ ABSL_GUARDED_BY(mu_);
  v1::SnapshotStatus status_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_THREAD_H_
