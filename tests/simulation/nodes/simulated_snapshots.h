// SnapshotThread in virtual time. Freezes the state of a shard once its journal has grown enough,
// or at the points of a schedule. Writes it piece by piece with the production writer while the
// shard continues. Then it truncates the journal up to the older of the two newest snapshots. A
// full disk aborts a snapshot, or only delays it if there is a schedule. Owned by ShardNode, one
// per life of its process that has a journal; one thread.
#ifndef KAON_TESTS_SIMULATION_NODES_SIMULATED_SNAPSHOTS_H_
#define KAON_TESTS_SIMULATION_NODES_SIMULATED_SNAPSHOTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "server/disk/disk.h"
#include "server/journal/identity_file.h"
#include "server/journal/interval_schedule.h"
#include "server/shard/shard_core.h"
#include "server/shard/snapshot/snapshot_directory.h"
#include "server/shard/snapshot/snapshot_writer.h"
#include "server/shard/snapshot/state_freeze.h"
#include "server/shard/snapshot_restore.h"
#include "tests/simulation/disk/simulated_disk.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

class SimulatedSnapshots {
 public:
  struct Options {
    // Name of the shard, for the trace.
    std::string name;
    // Mode INTERVAL: the points of snapshots, which replace the journal's growth.
    std::optional<journal::IntervalSchedule> schedule;
    // Size of the journal when the process starts.
    uint64_t appended_bytes = 0;
    // Called when a snapshot of that timeline is durable.
    std::function<void(const v1::SnapshotPoint& snapshot, uint64_t timeline)> on_snapshot;
    // Called when the journal may forget everything before the decision of `position`.
    std::function<void(uint64_t position)> truncate;
    // Called when the process must end.
    std::function<void(const absl::Status& status)> on_failed;
  };

  // `disk`, whose identity is `id`, outlives this object. The shard started from `restored`.
  SimulatedSnapshots(World& world, SimulatedDirectory& disk, const journal::DirectoryId& id,
                     const shard::RestoredSnapshot& restored, Options options);
  ~SimulatedSnapshots();

  // Called when an entry has taken effect, perhaps before the shard started. `appended_bytes` is
  // that of the journal.
  void OnApplied(shard::ShardCore& core, uint64_t appended_bytes);
  // Called when the journal durably holds that decision and all before it.
  void OnDurable(uint64_t position);

 private:
  enum class Stage { kIdle, kSweep, kCreate, kWrite, kCommit, kTell };

  bool IsDue(const shard::ShardCore& core, uint64_t appended_bytes);
  // Continues with `stage` a moment later, unless the process dies.
  void GoOn(Stage stage);
  void Run();
  // Makes one operation and returns the next stage.
  absl::StatusOr<Stage> Step();
  absl::StatusOr<Stage> Tell();
  // Abandons the snapshot after an error that the process survives.
  absl::Status GiveUp(const absl::Status& status);

  World& world_;
  SimulatedDirectory& disk_;
  const Options options_;
  // With a schedule, an operation on a full disk succeeds all the same, because no event can run
  // inside it. The next stage waits until there is room.
  bool lacked_room_ = false;
  const std::unique_ptr<disk::Directory> files_;
  shard::SnapshotDirectory directory_;
  const uint64_t restored_position_;
  const uint64_t rolled_back_to_;
  const bool restored_no_job_;
  // Events hold a weak reference, so they die with the process.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  // Appended bytes of the journal: at the start of the present growth, and at the newest snapshot
  // that is complete, in progress or waiting.
  uint64_t grown_from_;
  uint64_t newest_;
  // A snapshot is due even if the journal has hardly grown.
  bool due_ = false;
  uint64_t durable_position_ = 0;

  Stage stage_ = Stage::kIdle;
  std::unique_ptr<shard::StateFreeze> next_;
  std::unique_ptr<shard::SnapshotWriter> writer_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_SIMULATED_SNAPSHOTS_H_
