// One shard without threads and network. It joins the agreement machine, the gradient accumulator,
// the state and the publisher of its weights: events go in, outputs come out. Rooms 5 to 8 of a
// gradient's life start here. Owned by its ShardHost, whose step thread drives it. Only
// accumulator() and publisher() may be used from other threads.
#ifndef KAON_SERVER_SHARD_SHARD_CORE_H_
#define KAON_SERVER_SHARD_SHARD_CORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/journal/record.h"
#include "server/monitor/event_counts.h"
#include "server/shard/agreement/shard_machine.h"
#include "server/shard/applied_state.h"
#include "server/shard/checkpoint_taker.h"
#include "server/shard/gradient_appender.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "server/shard/journal_replay.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"
#include "server/shard/shard_core_options.h"
#include "server/shard/shard_host.h"
#include "server/shard/snapshot/state_freeze.h"
#include "server/shard/state_load.h"
#include "server/shard/step_phases.h"

namespace kaon::shard {

// An output of the core; the host carries out all outputs in their order.
using ShardOutput = std::variant<SendToCoordinator, EndStream, AppendJournal>;

class ShardCore {
 public:
  using Options = ShardCoreOptions;
  using ReadTensor = shard::ReadTensor;

  // `host` and both pointers outlive the core. `phases` hears of plans, pushes and pulls from any
  // thread; null if nobody measures. `counts` counts faults; null if nobody counts.
  ShardCore(Options options, ShardHost& host, StepPhases* phases = nullptr,
            monitor::EventCounts* counts = nullptr);

  // Start, in this order. After an error the core is useless.

  // Loads the state of a snapshot through `read`, which it calls for the tensors of `part` in their
  // order. Replay then skips the entries that the snapshot holds. DATA_LOSS naming both digests:
  // what was read is not what was written. RESOURCE_EXHAUSTED: the job does not fit into memory. It
  // returns the errors of `read`, too.
  absl::Status Restore(const AgreementSnapshot& facts, const v1::CheckpointPart& part,
                       const ReadTensor& read);
  // Takes the states that the shard can be rolled back to, oldest first. Mode INTERVAL only.
  void RestoreSnapshots(std::vector<v1::SnapshotPoint> snapshots) {
    machine_.RestoreSnapshots(std::move(snapshots));
  }
  // Replays one entry of the shard's journal; the caller reads all of them in order. DATA_LOSS
  // naming the position and both values: the entry does not follow those before.
  // RESOURCE_EXHAUSTED: the job does not fit into memory. UNAVAILABLE: a checkpoint that was
  // restored cannot be opened. FAILED_PRECONDITION: another durability mode wrote the entry.
  absl::Status Replay(const journal::Entry& entry) { return replay_.Replay(entry); }
  // Ends the replay.
  void FinishReplay();

  // Events. The host takes the outputs after each.

  void OnControl(StreamId stream, const v1::CoordinatorToShard& message, absl::Time now);
  // As ShardMachine::OnReady; leads to no output.
  void OnReady(StreamId stream, absl::Time now);
  void OnStreamClosed(StreamId stream);
  void OnParameterFolded(uint64_t generation, uint32_t parameter_id);
  void OnFolded(uint64_t generation);
  void OnDurable(uint64_t token);
  void OnRestoreChecked(uint64_t generation, const absl::Status& status);
  // Tells that a snapshot is durable, which was taken in that timeline.
  void OnSnapshot(const v1::SnapshotPoint& snapshot, uint64_t timeline) {
    machine_.OnSnapshot(snapshot, timeline);
  }
  void OnPartWritten(const std::string& id, uint64_t attempt,
                     const absl::StatusOr<v1::CheckpointPart>& part);
  std::vector<ShardOutput> TakeOutputs();

  // Between events, when none waits: Speculate computes ahead what the next decision probably asks
  // for, one parameter at a time. Leads to no output.
  bool CanSpeculate() const { return state_.CanSpeculate(); }
  void Speculate() { state_.Speculate(); }
  // Between events, too: samples one parameter for people who watch it, if one is due. Leads to no
  // output. A host leaves much time between samples.
  bool Sample();

  // Freezes the state after machine().applied_position(), to be read while events go on; some wait
  // for the reader, as FreezeList::BeforeWrite says. FAILED_PRECONDITION before weights are loaded,
  // and for a shard that lost its state. A reader that is not done when the core is destroyed gets
  // CANCELLED.
  absl::StatusOr<std::unique_ptr<StateFreeze>> Freeze() { return state_.Freeze(); }

  // Ends every push and every waiting pull with `status`, and gives up the part of a checkpoint.
  void EndDataStreams(const absl::Status& status);

  // Describes the shard. NOT_FOUND if it does not hold `job`; an empty name means any job, or none.
  absl::StatusOr<v1::DescribeShardResponse> Describe(absl::string_view job);
  // Describes its memory, and its disk if it has one. The rest of the description does not change
  // with time.
  std::vector<v1::TierStatus> Tiers() const;
  // Returns statistics of one parameter, and does not speculate on it for the next steps: a caller
  // that asks again sees its newest update. NOT_FOUND as Describe, before registration, and naming
  // a parameter of another shard.
  absl::StatusOr<v1::ParameterStats> Stats(const v1::ShardParameterRequest& request);
  // Returns facts of one parameter that no statistics need. NOT_FOUND as Stats.
  absl::StatusOr<v1::ParameterDiagnostics> Diagnostics(const v1::ShardParameterRequest& request);
  // Returns elements of one tensor as of the newest applied step. Errors of SliceOf, and NOT_FOUND
  // as Stats.
  absl::StatusOr<v1::TensorSlice> Slice(const v1::ShardSliceRequest& request);
  // Returns the samples of one parameter. NOT_FOUND as Stats.
  absl::StatusOr<v1::ParameterHistory> History(const v1::ShardParameterRequest& request);
  // Calls LargestOrthogonalityError. Absent without a job.
  std::optional<double> OrthogonalityError() const;

  const ShardMachine& machine() const { return machine_; }
  GradientAccumulator& accumulator() { return accumulator_; }
  ParameterPublisher& publisher() { return publisher_; }
  // Null before a registration was prepared.
  const ParameterStore* parameters() const { return state_.parameters(); }

 private:
  // Runs what the machine asked for, in order, until it asks for nothing more.
  void RunActions();
  void BeginStep(const BeginFolding& begin);
  void Apply(const v1::StepRecord& record);
  void Reserve(const ReserveJob& reserve);
  void ReserveRestore(const ReserveJob& reserve);
  void ReserveRollback(const ReserveJob& reserve);
  void Send(CheckpointTaker::Report report);
  absl::Status CheckJob(absl::string_view job) const;
  // Calls `use` with the newest weights, the state, and the weights before the newest update, which
  // are empty without one. Returns the errors of the places that have them.
  absl::Status WithTensors(
      const StoredParameter& parameter,
      absl::FunctionRef<void(kernels::ConstRegion newest, absl::Span<const kernels::Region> states,
                             kernels::ConstRegion previous)>
          use);
  absl::StatusOr<StoredParameter*> Find(const std::string& job, uint32_t parameter_id);

  const Options options_;
  ShardHost& host_;
  StepPhases* const phases_;
  ShardMachine machine_;
  ParameterPublisher publisher_;
  GradientAccumulator accumulator_;
  GradientAppender gradients_;
  AppliedState state_;
  JournalReplay replay_;
  CheckpointTaker checkpoint_;
  std::vector<ShardOutput> outputs_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SHARD_CORE_H_
