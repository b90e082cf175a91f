// What a shard without its threads and its network is made with, and what it has its owner do.
// Plain values, set before the ShardCore is made; which thread calls what is said of each.
#ifndef KAON_SERVER_SHARD_SHARD_CORE_OPTIONS_H_
#define KAON_SERVER_SHARD_SHARD_CORE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/checkpoint.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"
#include "server/checkpoint/restore_marks.h"
#include "server/disk/disk.h"
#include "server/journal/record.h"
#include "server/monitor/event_counts.h"
#include "server/shard/snapshot/checkpoint_part.h"
#include "server/shard/snapshot/snapshot_directory.h"
#include "server/shard/snapshot/state_freeze.h"
#include "server/shard/step_phases.h"
#include "server/tier/tiered_store.h"

namespace kaon::shard {

// What a shard makes sure of before it votes for a restore.
struct RestoreCheck {
  v1::RestoreBody restore;
  checkpoint::RestoreMark mark;
  uint32_t shard = 0;
};

struct ShardCoreOptions {
  // Both outlive the core.
  tier::TieredStore* store = nullptr;
  kernels::Backend* backend = nullptr;
  // Who computes, as files say it and as it is shown: build, backend and device_class.
  v1::CheckpointFile written_by;
  // Of the cpu backend, as they are shown: DescribeShardResponse.
  std::string instruction_set;
  uint32_t compute_threads = 0;
  // Gradients that may wait for an earlier rank, all workers together.
  uint64_t staging_bytes = 64 << 20;
  // As in GradientAccumulator::Options.
  uint64_t min_chunk_bytes = 0;
  // Told of plans, pushes and pulls, by any thread; outlives the core. Null: nobody measures.
  StepPhases* phases = nullptr;
  // Counts what this shard keeps from happening; outlives the core. Null: nobody counts.
  monitor::EventCounts* counts = nullptr;
  // Train steps in which all of the state in memory is reread once (P11).
  uint64_t scrub_steps = 64;
  // Why the shard lost the state it once held; empty if it did not.
  std::string data_loss;
  // What survives a restart, as it is shown.
  v1::DurabilityMode durability = v1::DURABILITY_MODE_NONE;
  // Steps that a restart loses at most in mode INTERVAL; else 0.
  uint32_t interval_steps = 0;
  // Called, perhaps from a thread that pushes and perhaps inside a call of this class, when every
  // contribution of a generation is folded: the owner must call OnFolded(generation) later, not
  // from inside.
  std::function<void(uint64_t generation)> on_folded;
  // As on_folded, for one parameter while others are still pushed: OnParameterFolded.
  std::function<void(uint64_t generation, uint32_t parameter_id)> on_parameter_folded;
  // Called inside events, for the whole gradient that a PREPARE votes on, before that is among
  // the outputs. As Journal::AppendGradient: the values are borrowed until OnDurable of that
  // PREPARE, or withdraw_gradients.
  std::function<void(const journal::GradientSlice& slice)> append_gradient;
  // A new view of the directory of checkpoints; null if there is none.
  std::function<absl::StatusOr<std::unique_ptr<disk::Directory>>()> open_checkpoints;
  // Called inside an event: CheckCheckpoint is to be made, on whatever thread, and its answer told
  // by OnRestoreChecked later. Null: it is made at once.
  std::function<void(const RestoreCheck& check, uint64_t generation)> check_restore;
  // Called inside an event: WritePart is to be made, on whatever thread, and its answer told by
  // OnPartWritten later. Null: it is made at once.
  std::function<void(std::unique_ptr<StateFreeze> freeze, PartOptions part)> write_part;
  // Called inside an event, once an entry has taken effect and before what follows from it is
  // among the outputs; not during replay. May call Freeze.
  std::function<void()> on_applied;
  // Called inside an event, once: the state is not what it must be, and nobody is served of it any
  // more. Not for `data_loss` above, nor during replay.
  std::function<void(const std::string& why)> on_data_loss;
  // As Journal::WithdrawGradients: no PREPARE will come for what was appended since the last.
  std::function<void()> withdraw_gradients;
  // Calls `use` with the snapshots of this shard, on the caller's thread, and returns what it does;
  // null where no rollback is possible.
  std::function<absl::Status(const std::function<absl::Status(SnapshotDirectory&)>& use)>
      with_snapshots;
  // Called inside an event: CheckSnapshot is to be made, on whatever thread, and its answer told by
  // OnRestoreChecked later. Null: it is made at once.
  std::function<void(const v1::SnapshotPoint& target, uint64_t generation)> check_rollback;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SHARD_CORE_OPTIONS_H_
