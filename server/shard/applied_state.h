// State of a job on one shard, and the entries that change it: registration, initial weights, train
// steps, group changes, restores, rollbacks, deletion. Room 7 of a gradient's life. Owned by
// ShardCore; step thread.
#ifndef KAON_SERVER_SHARD_APPLIED_STATE_H_
#define KAON_SERVER_SHARD_APPLIED_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/monitor/event_counts.h"
#include "server/shard/agreement/shard_machine.h"
#include "server/shard/gradient_appender.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "server/shard/parameters/parameter_moves.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"
#include "server/shard/parameters/parameter_update.h"
#include "server/shard/parameters/speculation.h"
#include "server/shard/parameters/state_scrub.h"
#include "server/shard/shard_core_options.h"
#include "server/shard/shard_host.h"
#include "server/shard/snapshot/state_freeze.h"
#include "server/shard/state_load.h"

namespace kaon::shard {

class AppliedState {
 public:
  // Objects that the state works with. All outlive it.
  struct Siblings {
    ShardHost& host;
    ShardMachine& machine;
    GradientAccumulator& accumulator;
    ParameterPublisher& publisher;
    GradientAppender& gradients;
    // Counts updates that were not applied; null if nobody counts.
    monitor::EventCounts* counts = nullptr;
  };
  // `options` outlive the state.
  AppliedState(const ShardCoreOptions& options, const Siblings& siblings);

  // Reserves memory for the job on `shard`, in place of an earlier reservation. After an error the
  // shard holds no parameters: RESOURCE_EXHAUSTED with the arithmetic, or INVALID_ARGUMENT as
  // ParameterStore::Create.
  absl::Status Reserve(const v1::RegisterBody& registration, uint32_t shard, uint32_t num_shards);

  // Changes the state as `record` decides, and tells the machine. After an error the state is
  // useless: a file is no longer the one that the shard voted for, or a disk with parameters
  // failed.
  absl::Status Apply(const v1::StepRecord& record);

  // Ends every use of the job's memory and releases it, because `job` was deleted.
  void Release(const std::string& job);

  // Loads the snapshot `part` of applied step `step`, as LoadState.
  absl::Status Load(const v1::CheckpointPart& part, uint64_t step, const ReadTensor& read);
  // Ends a replay: counts and traces begin with the process.
  void FinishReplay();

  // Takes the sums of the newest gradient, which traces and statistics need.
  void SetSums(const v1::Prepared& facts);
  // Tells pushes and pulls which step to expect from now on.
  void ExpectNextStep();

  // Expects gradients of this plan: weights may be computed ahead of its decision.
  void BeginStep(const v1::StepPlan& plan, uint64_t generation);
  // Tells that the gradient of one parameter may be finished.
  void OnParameterFolded(uint64_t generation, uint32_t parameter_id);
  // Tells that all gradients are finished; adds the largest weights to `facts`.
  void OnFolded(uint64_t generation, v1::Prepared& facts);
  // Allocates memory and disk for a change of groups that moves parameters, and frees it.
  absl::Status ReserveMoves(const v1::StepPlan& plan);
  void DropMoves() { moves_.reset(); }
  // Forgets the weights that were computed ahead.
  void EndSpeculation() { speculation_.End(); }
  // Returns whether Speculate has something to do that delays no reader of a freeze.
  bool CanSpeculate() const { return speculation_.IsPending() && !freezes_.IsRead(); }
  // Computes the new weights of one parameter.
  void Speculate();

  // Implements ShardCore::Freeze. Right after a deletion the state is empty.
  absl::StatusOr<std::unique_ptr<StateFreeze>> Freeze();
  // Cancels every freeze that is not read to its end.
  void EndFreezes() { freezes_.EndAll(); }

  // Null until memory is reserved.
  ParameterStore* parameters() { return parameters_.get(); }
  const ParameterStore* parameters() const { return parameters_.get(); }
  // Train steps since the process started.
  uint64_t applied_steps() const { return applied_steps_; }
  uint64_t skipped_steps() const { return skipped_steps_; }

 private:
  void FreeBackend();
  absl::Status TryReserve(const v1::RegisterBody& registration, uint32_t shard,
                          uint32_t num_shards);
  absl::Status ApplyRestore(const v1::StepPlan& plan);
  absl::Status ApplyRollback(const v1::StepPlan& plan);
  // Forgets the statistics that the result of `step` of `timeline` has no part in.
  void ForgetStepsAfter(uint64_t timeline, uint64_t step);
  absl::Status ApplyGroupChange(const v1::StepRecord& record);
  absl::Status ApplyMoves(const v1::StepPlan& plan);
  absl::Status LoadWeights();
  absl::Status ApplyTrainStep(const v1::StepRecord& record);
  // Applies the step to parameters that are updated concurrently.
  absl::Status ApplyTo(absl::Span<StoredParameter* const> parameters, const v1::StepRecord& record);
  // Publishes an update that ran as version `step`.
  void Publish(DecidedUpdate update, uint64_t step);
  // Tells the machine that the entry at `position` is applied, and the digest of the new state.
  void FinishApply(uint64_t position);
  // Adopts the groups and workers of `registration` and forgets the newest gradient.
  void Adopt(const v1::RegisterBody& registration);
  // Keeps what statistics need of a decided train step.
  void TraceGradients(uint64_t step);

  const ShardCoreOptions& options_;
  ShardHost& host_;
  ShardMachine& machine_;
  GradientAccumulator& accumulator_;
  ParameterPublisher& publisher_;
  GradientAppender& gradients_;
  monitor::EventCounts* const counts_;

  std::unique_ptr<ParameterStore> parameters_;
  // Refers to it. Null unless a change of groups is planned.
  std::unique_ptr<ParameterMoves> moves_;
  // The change that they are of.
  std::string moves_are_of_;
  Speculation speculation_;
  StateScrub scrub_;
  // Reads the memory of parameters_, and is destroyed before it.
  FreezeList freezes_;
  // Sums of the newest gradient, by parameter id.
  std::vector<v1::ParameterSums> sums_;
  StepLineage lineage_;
  // Digest of all shards' state in the checkpoint that is being applied.
  std::optional<uint64_t> restored_digest_;
  uint64_t applied_steps_ = 0;
  uint64_t skipped_steps_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_APPLIED_STATE_H_
