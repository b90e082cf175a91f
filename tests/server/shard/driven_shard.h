// A ShardCore driven by a test, which is its host: its journal completes at once, and Pump does the
// slow work. One thread.
#ifndef KAON_TESTS_SERVER_SHARD_DRIVEN_SHARD_H_
#define KAON_TESTS_SERVER_SHARD_DRIVEN_SHARD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/disk/disk.h"
#include "server/shard/shard_core.h"
#include "server/shard/shard_host.h"
#include "server/shard/snapshot/snapshot_directory.h"
#include "server/tier/tiered_store.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/server/shard/device/shard_memory.h"
#include "tests/server/shard/recorded_journal.h"

namespace kaon::shard {

class DrivenShard final : private ShardHost {
 public:
  // `interval_steps`: mode INTERVAL, if it is not 0. `on_device`: as ShardMemory.
  explicit DrivenShard(uint64_t capacity_bytes = 1 << 16, std::string data_loss = "",
                       uint32_t interval_steps = 0, bool on_device = ShardMemory::is_device());

  ShardCore& core() { return *core_; }
  v1::ShardState state() const { return core_->machine().state(); }
  // What OnDataLoss was told.
  const std::vector<std::string>& losses() const { return losses_; }
  // Everything it appended.
  const RecordedJournal& journal() const { return journal_; }
  tier::TieredStore& store() { return memory_.store(); }
  ShardMemory& memory() { return memory_; }

  // Where it finds checkpoints from now on; outlives it.
  void SetCheckpoints(disk::Directory* files) { checkpoints_ = files; }
  // Where its snapshots are, in mode INTERVAL; outlives it.
  void SetSnapshots(SnapshotDirectory* snapshots) { snapshots_ = snapshots; }
  // Before anything else: it is not the only shard.
  void PlaceAs(uint32_t shard, uint32_t num_shards);

  // Each returns what the shard answered.
  std::vector<v1::ShardToCoordinator> Promise(uint64_t counter);
  std::vector<v1::ShardToCoordinator> Plan(const v1::StepPlan& plan);
  std::vector<v1::ShardToCoordinator> Decide(const v1::StepRecord& record);

  // Of what is pushed from now on; 1 before.
  void SetTimeline(uint64_t timeline) { timeline_ = timeline; }
  // Number of the rank's attempt, as which it pushes from now on; rank + 1 before.
  void SetAttempt(uint32_t rank, uint64_t number) { attempts_[rank] = number; }
  // Asks for a part of a checkpoint.
  std::vector<v1::ShardToCoordinator> Take(const std::string& id, uint64_t position,
                                           uint64_t attempt = 1);
  // Pushes all of `values` as one chunk each, by parameter id, and finishes; a parameter without
  // values is missing.
  absl::Status Push(uint32_t rank, uint64_t step, const std::vector<std::vector<float>>& values);
  // The same of the parameters that are named.
  absl::Status PushParameters(uint32_t rank, uint64_t step,
                              const std::map<uint32_t, std::vector<float>>& values);
  // What the pushes led to.
  std::vector<v1::ShardToCoordinator> Pump();

  // Registers the job and loads weights: w = 1 .. 6, b = 1, f = 9.
  // The first element of w is `first`.
  void Load(const v1::StepPlan& registration = RegistrationPlan(1, 1), float first = 1);
  // One step of both ranks with these gradients of w and b (f is frozen), applied with clip
  // factor 1, as the shard's next entry; or voted for, and the decision returned.
  void Train(uint64_t step, const std::vector<std::vector<float>>& values);
  v1::StepRecord Decided(uint64_t step, const std::vector<std::vector<float>>& values);

  std::vector<float> Read(uint32_t parameter_id, uint64_t step);

 private:
  // ShardHost.
  void OnParameterFolded(uint64_t generation, uint32_t parameter_id) override {
    folded_parameters_.push_back({generation, parameter_id});
  }
  void OnFolded(uint64_t generation) override { folded_.push_back(generation); }
  void AppendGradient(const journal::GradientSlice& slice) override { journal_.Append(slice); }
  void WithdrawGradients() override {}
  void OnApplied() override {}
  void OnDataLoss(const std::string& why) override { losses_.push_back(why); }
  void CheckRestore(const RestoreCheck& check, uint64_t generation) override;
  void CheckRollback(const v1::SnapshotPoint& target, uint64_t generation) override;
  void WritePart(std::unique_ptr<StateFreeze> freeze, PartOptions part) override;
  absl::StatusOr<std::unique_ptr<disk::Directory>> OpenCheckpoints() override;
  absl::Status WithSnapshots(UseSnapshots use) override;

  v1::CoordinatorToShard Envelope(uint64_t counter);

  ShardMemory memory_;
  disk::Directory* checkpoints_ = nullptr;
  SnapshotDirectory* snapshots_ = nullptr;
  uint32_t shard_ = 0;
  uint32_t num_shards_ = 1;
  uint64_t timeline_ = 1;
  std::map<uint32_t, uint64_t> attempts_;
  std::vector<uint64_t> folded_;
  std::vector<std::pair<uint64_t, uint32_t>> folded_parameters_;
  // What the host was asked to start.
  std::vector<std::function<void()>> work_;
  std::vector<std::string> losses_;
  RecordedJournal journal_;
  std::unique_ptr<ShardCore> core_;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_DRIVEN_SHARD_H_
