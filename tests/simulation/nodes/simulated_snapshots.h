// What SnapshotThread does, in virtual time: freezes the state of a shard once its journal has
// grown by so much, or at the points of a schedule, writes it piece by piece with the production
// writer while the shard goes on, and lets the journal forget what the older of the two newest
// stands for. A full disk gives one up, or, by a schedule, only delays it. Owned by ShardNode, one
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
    // Of the shard, for the trace.
    std::string name;
    // Mode INTERVAL: these points, instead of the journal's growth.
    std::optional<journal::IntervalSchedule> schedule;
    // Of the journal when the process starts.
    uint64_t appended_bytes = 0;
    // One that was taken in that timeline is durable.
    std::function<void(const v1::SnapshotPoint& snapshot, uint64_t timeline)> on_snapshot;
    // The journal may forget what is before the decision of `position`.
    std::function<void(uint64_t position)> truncate;
    // The process must end.
    std::function<void(const absl::Status& status)> on_failed;
  };

  // `disk`, whose identity is `id`, outlives this object; `restored` is what the shard started
  // from.
  SimulatedSnapshots(World& world, SimulatedDirectory& disk, const journal::DirectoryId& id,
                     const shard::RestoredSnapshot& restored, Options options);
  ~SimulatedSnapshots();

  // An entry has taken effect, perhaps before the shard started; `appended_bytes` is the journal's.
  void OnApplied(shard::ShardCore& core, uint64_t appended_bytes);
  // The journal holds that decision, and all before it, durably.
  void OnDurable(uint64_t position);

 private:
  enum class Stage { kIdle, kSweep, kCreate, kWrite, kCommit, kTell };

  bool IsDue(const shard::ShardCore& core, uint64_t appended_bytes);
  // Goes on with `stage` a moment later, unless the process dies.
  void GoOn(Stage stage);
  void Run();
  // One operation; returns what comes next.
  absl::StatusOr<Stage> Step();
  absl::StatusOr<Stage> Tell();
  // After an error that the process survives.
  absl::Status GiveUp(const absl::Status& status);

  World& world_;
  SimulatedDirectory& disk_;
  const Options options_;
  // By a schedule, what a full disk refuses is done all the same, and what comes next waits until
  // there is room: no event can run in the middle of an operation.
  bool lacked_room_ = false;
  const std::unique_ptr<disk::Directory> files_;
  shard::SnapshotDirectory directory_;
  const uint64_t restored_position_;
  const uint64_t rolled_back_to_;
  // Events hold it weakly: they die with the process.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  // Of the journal when growth began to count, and the newest that is there, was begun, or waits.
  uint64_t grown_from_;
  uint64_t newest_;
  // One is to be taken however little the journal has grown.
  bool due_ = false;
  uint64_t durable_position_ = 0;

  Stage stage_ = Stage::kIdle;
  std::unique_ptr<shard::StateFreeze> next_;
  std::unique_ptr<shard::SnapshotWriter> writer_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_SIMULATED_SNAPSHOTS_H_
