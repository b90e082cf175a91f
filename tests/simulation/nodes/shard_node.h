// One shard process of a simulated cluster: the production ShardCore over a journal and snapshots
// on a simulated disk, in any durability mode, and streams, in virtual time; it can be killed, its
// power cut, its disk filled or broken, and it starts again from its snapshot and its journal.
// Owned by RunCluster; one thread.
#ifndef KAON_TESTS_SIMULATION_NODES_SHARD_NODE_H_
#define KAON_TESTS_SIMULATION_NODES_SHARD_NODE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kernels/backend.h"
#include "server/journal/journal.h"
#include "server/journal/journal_log.h"
#include "server/shard/shard_core.h"
#include "server/shard/shard_host.h"
#include "server/shard/snapshot/snapshot_directory.h"
#include "server/shard/snapshot_restore.h"
#include "server/tier/host_tier.h"
#include "server/tier/tiered_store.h"
#include "tests/simulation/disk/simulated_disk.h"
#include "tests/simulation/durable_state.h"
#include "tests/simulation/nodes/simulated_journal.h"
#include "tests/simulation/nodes/simulated_nvme.h"
#include "tests/simulation/nodes/simulated_snapshots.h"
#include "tests/simulation/skewed_clock.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

class ShardNode final : private shard::ShardHost {
 public:
  // Shared by the events it is part of.
  using Message = std::shared_ptr<const v1::ShardToCoordinator>;
  using OnMessage = std::function<void(shard::StreamId, Message)>;
  using OnClosed = std::function<void(shard::StreamId)>;

  ShardNode(World& world, int index);
  ~ShardNode() override;

  int index() const { return index_; }
  bool alive() const { return core_ != nullptr; }
  // Of the process, counted from 1.
  uint64_t life() const { return life_; }
  // While it is alive.
  shard::ShardCore& core() { return *core_; }
  // Null while it is dead.
  const shard::ShardMachine* machine() const { return alive() ? &core_->machine() : nullptr; }
  // What is on disk for certain.
  absl::StatusOr<DurableState> ReadDurable() const;

  // From the journal. Nothing if it is alive.
  void Start();
  // kill -9: the operating system keeps what was written.
  void Kill(absl::Duration downtime);
  // Of what was not synced only a part is left, and that the connections are gone is noticed late.
  void CutPower(absl::Duration downtime);
  // Runs `fault` a moment after it has appended something to its journal, while faults last.
  void AtNextAppend(std::function<void()> fault) { at_next_append_ = std::move(fault); }
  // Nothing more fits on its disk until then.
  void FillDisk(absl::Duration duration);
  // The device fails at one of its next operations, and works again when the process is started
  // again.
  void BreakDisk();

  // A control stream; 0 if the process is dead. Messages to it are lost once it is closed;
  // `on_closed` runs when the other end learns that the process died.
  shard::StreamId OpenStream(OnMessage on_message, OnClosed on_closed);
  void CloseStream(shard::StreamId stream);
  void Deliver(shard::StreamId stream, const v1::CoordinatorToShard& message);
  // Runs when the other end of a data stream learns that the process died.
  void OnDeath(std::function<void()> event) { on_death_.push_back(std::move(event)); }

  // Of the newest version.
  std::vector<float> Weights(uint32_t parameter_id);
  // Calls `on_read` when version `step` can be read; never if it, or its timeline, is gone.
  void Pull(uint64_t timeline, uint32_t parameter_id, uint64_t step,
            std::function<void(std::vector<float>)> on_read);

  // The record of an entry it has decided, or of the oldest that it keeps.
  absl::StatusOr<v1::StepRecord> ReadHistory(uint64_t position);

  // All that it keeps; it is alive.
  std::vector<v1::StepRecord> History();

  // Carries out what the core wants after an event on it.
  void Drain();

  // Starts again without state and without saying so: a seeded bug.
  void Forget();

 private:
  struct ControlStream {
    OnMessage on_message;
    OnClosed on_closed;
  };

  // ShardHost.
  void OnParameterFolded(uint64_t generation, uint32_t parameter_id) override;
  void OnFolded(uint64_t generation) override;
  void AppendGradient(const journal::GradientSlice& slice) override {
    journal_->AppendGradient(slice);
  }
  void WithdrawGradients() override { journal_->WithdrawGradients(); }
  void OnApplied() override;
  void OnDataLoss(const std::string& why) override { static_cast<void>(why); }
  void CheckRestore(const shard::RestoreCheck& check, uint64_t generation) override;
  void CheckRollback(const v1::SnapshotPoint& target, uint64_t generation) override;
  void WritePart(std::unique_ptr<shard::StateFreeze> freeze, shard::PartOptions part) override;
  absl::StatusOr<std::unique_ptr<disk::Directory>> OpenCheckpoints() override;
  absl::Status WithSnapshots(UseSnapshots use) override;

  shard::ShardCore::Options CoreOptions();
  std::unique_ptr<shard::ShardCore> NewCore();
  // Runs `event` later, unless this process has died by then.
  void After(absl::Duration delay, std::function<void()> event);
  void SpeculateSoon();
  // As its thread of checkpoints does; the process may die in the middle.
  void WriteFrozen(shard::StateFreeze& freeze, const shard::PartOptions& part);
  // Calls `use` with the snapshots on its disk.
  absl::Status UseDisk(UseSnapshots use);
  // What a start has made of the disk.
  struct Recovered {
    std::unique_ptr<shard::ShardCore> core;
    // Of the log, which it outlives.
    std::unique_ptr<journal::History> history = std::make_unique<journal::History>();
    // Null in mode `none`.
    std::unique_ptr<journal::JournalLog> log;
    shard::RestoredSnapshot snapshot;
  };
  absl::Status Recover(Recovered& recovered);
  absl::Status RestoreSnapshot(Recovered& recovered);
  // The core begins to serve.
  void Serve(Recovered recovered);
  void CannotStart(const absl::Status& status, bool disk_failed);
  // Memory may change on the way from the disk.
  absl::Status ReplaySlice(const journal::GradientSlice& slice, shard::ShardCore& core);
  // A write or a sync failed for good.
  void EndOf(const absl::Status& status);
  void Die(absl::Duration until_noticed);
  void RestartAfter(absl::Duration downtime);

  World& world_;
  const int index_;
  // Of this machine; the process that runs on it sees no other.
  const SkewedClock clock_{world_.options(), world_.queue(), 2000 + static_cast<uint64_t>(index_)};
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<SimulatedDirectory> disk_;
  uint64_t life_ = 0;
  std::unique_ptr<tier::HostTier> tier_;
  std::unique_ptr<tier::TieredStore> store_;
  SimulatedNvme nvme_;
  std::unique_ptr<shard::ShardCore> core_;
  std::unique_ptr<journal::Journal> journal_;
  // Null in mode `none`.
  std::unique_ptr<SimulatedSnapshots> snapshots_;
  shard::StreamId next_stream_ = 1;
  std::map<shard::StreamId, ControlStream> streams_;
  std::vector<std::function<void()>> on_death_;
  std::function<void()> at_next_append_;
  // A bit of what was read back at this start was changed.
  bool flipped_ = false;
  // Refusals of the disk that are counted already.
  uint64_t full_seen_ = 0;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_SHARD_NODE_H_
