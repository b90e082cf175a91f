// One shard without its threads and its network: the agreement machine, the gradient accumulator,
// the parameters and their publisher, driven by events. Rooms 5-8 of a gradient's life are Carry()
// below. Owned by StepLoop, whose one thread drives it, or by the simulator, which is one thread.
// Only accumulator() and publisher() may be used from other threads.
#ifndef KAON_SERVER_SHARD_SHARD_CORE_H_
#define KAON_SERVER_SHARD_SHARD_CORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/journal/record.h"
#include "server/monitor/event_counts.h"
#include "server/shard/agreement/shard_machine.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "server/shard/gradients/gradient_replay.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"
#include "server/shard/parameters/parameter_update.h"
#include "server/shard/parameters/speculation.h"
#include "server/shard/parameters/state_scrub.h"
#include "server/shard/shard_core_options.h"
#include "server/shard/shard_host.h"
#include "server/shard/snapshot/checkpoint_order.h"
#include "server/shard/snapshot/checkpoint_part.h"
#include "server/shard/snapshot/state_freeze.h"
#include "server/shard/step_phases.h"

namespace kaon::shard {

// What the owner carries out for the core.
using ShardOutput = std::variant<SendToCoordinator, EndStream, AppendJournal>;

class ShardCore {
 public:
  using Options = ShardCoreOptions;

  // All pointers outlive the core. `phases`: told of plans, pushes and pulls by any thread; null if
  // nobody measures. `counts`: counts what this shard prevents; null if nobody counts.
  ShardCore(Options options, ShardHost& host, StepPhases* phases = nullptr,
            monitor::EventCounts* counts = nullptr);

  // All bytes of a tensor, as checkpoint::StateBytes lays them out.
  using ReadTensor =
      std::function<absl::Status(const v1::CheckpointTensor& tensor, absl::Span<char> to)>;
  // The state of a snapshot, its tensors in the order of `part`; before Replay of the whole
  // journal, of which it leaves out what the snapshot holds. DATA_LOSS naming both digests when
  // what was read is not what was written, RESOURCE_EXHAUSTED when the job does not fit into
  // memory, and the errors of `read`; the core is useless then.
  absl::Status Restore(const FrozenFacts& facts, const v1::CheckpointPart& part,
                       const ReadTensor& read);

  // In mode INTERVAL, before Replay: the states it can be rolled back to, oldest first.
  void RestoreSnapshots(std::vector<v1::SnapshotPoint> snapshots) {
    machine_.RestoreSnapshots(std::move(snapshots));
  }
  // One entry of the shard's journal, in order, before any event; after the last, FinishReplay,
  // which measures forms where no job is held.
  // DATA_LOSS naming the position and both values when it does not follow those before,
  // RESOURCE_EXHAUSTED when the job does not fit into memory; the core is useless then.
  absl::Status Replay(const journal::Entry& entry);
  void FinishReplay();

  // Events. After each, the owner takes the outputs.
  void OnControl(StreamId stream, const v1::CoordinatorToShard& message, absl::Time now);
  // As ShardMachine::OnReady; leads to no output.
  void OnReady(StreamId stream, absl::Time now);
  void OnStreamClosed(StreamId stream);
  void OnParameterFolded(uint64_t generation, uint32_t parameter_id);
  void OnFolded(uint64_t generation);
  void OnDurable(uint64_t token);
  void OnRestoreChecked(uint64_t generation, const absl::Status& status);
  // A snapshot that was taken in that timeline is durable.
  void OnSnapshot(const v1::SnapshotPoint& snapshot, uint64_t timeline) {
    machine_.OnSnapshot(snapshot, timeline);
  }
  void OnPartWritten(const std::string& id, uint64_t attempt,
                     const absl::StatusOr<v1::CheckpointPart>& part);
  std::vector<ShardOutput> TakeOutputs();

  // Between events, whenever there is none: Speculate computes what the next decision will probably
  // ask for, one parameter at a time. Leads to no output.
  bool CanSpeculate() const { return speculation_.IsPending() && !freezes_.IsRead(); }
  void Speculate() { speculation_.ComputeOne(*parameters_, machine_.registration()->placement()); }

  // The state after machine().applied_position(), to be read while events go on: BeforeWrite of
  // FreezeList says when they wait. FAILED_PRECONDITION before weights are loaded, and for a shard
  // that lost its state. The reader ends before this object's memory does, or gets CANCELLED.
  absl::StatusOr<std::unique_ptr<StateFreeze>> Freeze();

  // Ends every push and every waiting pull with `status`, and the part of a checkpoint, soon.
  void EndDataStreams(const absl::Status& status);

  // NOT_FOUND when the shard does not hold `job` (empty = whatever it holds).
  absl::StatusOr<v1::DescribeShardResponse> Describe(absl::string_view job);
  // NOT_FOUND as Describe, before registration, and naming a parameter that is another shard's.
  // The parameter is not stepped ahead for some steps, so that who asks again sees its newest
  // update.
  absl::StatusOr<v1::ParameterStats> Stats(const v1::ShardParameterRequest& request);
  absl::StatusOr<v1::ParameterDiagnostics> Diagnostics(
      const v1::ShardParameterRequest& request) const;

  const ShardMachine& machine() const { return machine_; }
  GradientAccumulator& accumulator() { return accumulator_; }
  ParameterPublisher& publisher() { return publisher_; }
  // Null before a registration was prepared.
  const ParameterStore* parameters() const { return parameters_.get(); }

 private:
  // Carries out what the machine asked for, in order, until it asks for nothing more.
  void Carry();
  // What the vote is about goes before it into the journal; once, however often it is stamped.
  void AppendGradientOf(const journal::Record& record);
  GradientAccumulator::AppendSlice AppendSlice();
  // Before the memory of sums is used again.
  void WithdrawGradients();
  void TakeCheckpoint(const WriteCheckpoint& write);
  void FreezeForCheckpoint();
  void ReportCheckpoint();
  void Reserve(const ReserveJob& reserve);
  void ReserveRestore(const ReserveJob& reserve);
  void ReserveRollback(const ReserveJob& reserve);
  absl::Status ReplaySlice(const journal::GradientSlice& slice);
  absl::Status ReplayPrepare(const v1::StepPlan& plan, const journal::PrepareRecord& prepare);
  // True for what a restored snapshot holds already.
  absl::StatusOr<bool> IsInSnapshot(const journal::Entry& entry);
  absl::StatusOr<bool> IsDecidedInSnapshot(const v1::StepRecord& record);
  // DATA_LOSS naming both digests when what was read is not what was frozen.
  absl::Status LoadTensors(const v1::CheckpointPart& part, uint64_t step, const ReadTensor& read);
  absl::Status TryReserve(const v1::RegisterBody& registration, uint32_t shard,
                          uint32_t num_shards);
  // Fails only where what it reads is no more what was voted for: the core is useless then.
  absl::Status Apply(const v1::StepRecord& record);
  absl::Status ApplyRestore(const v1::StepPlan& plan);
  absl::Status ApplyRollback(const v1::StepPlan& plan);
  void ApplyGroupChange(const v1::StepRecord& record);
  void LoadWeights();
  void ApplyTrainStep(const v1::StepRecord& record);
  // To parameters that are updated side by side.
  void ApplyTo(absl::Span<StoredParameter> parameters, const v1::StepRecord& record);
  // Tells the machine that the entry at `position` is applied, and what the state is now.
  void FinishApply(uint64_t position);
  // Keeps what statistics need of a decided train step.
  void TraceGradients(uint64_t step);
  absl::Status CheckJob(absl::string_view job) const;
  absl::StatusOr<StoredParameter*> Find(const v1::ShardParameterRequest& request) const;
  // Tells the data plane which step it may serve from now on.
  void ExpectNextStep();

  const Options options_;
  ShardHost& host_;
  StepPhases* const phases_;
  monitor::EventCounts* const counts_;
  ShardMachine machine_;
  ParameterPublisher publisher_;
  GradientAccumulator accumulator_;
  GradientReplay gradient_replay_;
  // Of the snapshot that was restored; position 0 if there was none.
  uint64_t restored_position_ = 0;
  v1::Ballot restored_promise_;
  // The decision that it was taken at is still to be read.
  bool before_restored_ = false;
  std::unique_ptr<ParameterStore> parameters_;
  Speculation speculation_;
  StateScrub scrub_;
  // Read the memory of parameters_, and go first.
  FreezeList freezes_;
  // The attempt that was asked for last; null before.
  std::unique_ptr<CheckpointOrder> checkpoint_;
  // Of what was folded last.
  std::vector<v1::ParameterSums> sums_;
  // Of all shards, as the checkpoint has it that is being applied.
  std::optional<uint64_t> restored_digest_;
  std::vector<ShardOutput> outputs_;
  // The newest generation whose PREPARE was appended.
  uint64_t appended_generation_ = 0;
  // Gradients were appended, their PREPARE was not.
  bool ahead_of_prepare_ = false;
  uint64_t applied_steps_ = 0;
  uint64_t skipped_steps_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SHARD_CORE_H_
