// Takes the gradients the workers push for one step and sums them in rank order (room 4 of a
// gradient's life). Knows jobs, plans, attempts and credits; the arithmetic of one parameter is
// ParameterFold's. Owned by ShardCore. Push calls come from any thread; those under "Step thread"
// from the one that drives the core.
#ifndef KAON_SERVER_SHARD_GRADIENTS_GRADIENT_ACCUMULATOR_H_
#define KAON_SERVER_SHARD_GRADIENTS_GRADIENT_ACCUMULATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_data.pb.h"
#include "kernels/backend.h"
#include "kernels/mutex.h"
#include "proto/tensor_stream.h"
#include "server/journal/record.h"
#include "server/shard/gradients/open_push.h"
#include "server/shard/gradients/parameter_fold.h"
#include "server/shard/gradients/push_registry.h"
#include "server/shard/gradients/reduction.h"
#include "server/shard/step_phases.h"
#include "server/tier/tiered_store.h"

namespace kaon::shard {

class GradientAccumulator {
 public:
  using AppendSlice = std::function<void(const journal::GradientSlice& slice)>;

  struct Options {
    // Both outlive the accumulator.
    tier::TieredStore* store = nullptr;
    kernels::Backend* backend = nullptr;
    // Split evenly over the job's workers.
    uint64_t staging_bytes = 0;
    // Everything of a generation is folded. Called without a lock held, on any thread, perhaps
    // inside BeginFolding.
    std::function<void(uint64_t generation)> on_folded;
    // One parameter of it is, before everything is; once, as on_folded, but not in BeginFolding.
    std::function<void(uint64_t generation, uint32_t parameter_id)> on_parameter_folded;
    // Fewest bytes of a chunk that does not end its parameter.
    uint64_t min_chunk_bytes = 0;
    // Told of what is received and folded; null if nobody measures.
    StepPhases* phases = nullptr;
  };

  explicit GradientAccumulator(Options options);
  ~GradientAccumulator();

  // FAILED_PRECONDITION (older step or timeline: names both), NOT_FOUND (other job), UNAVAILABLE
  // (newer step or timeline, or no plan yet), ABORTED (the plan has another attempt of this rank),
  // INVALID_ARGUMENT (no such rank), or what the accumulator was closed with. Ends the rank's
  // earlier stream, unless it is a lane of that (PushRegistry::Join).
  absl::StatusOr<OpenPush> Open(const v1::PushOpen& open, PushCallbacks callbacks);
  // The chunks of one message. INVALID_ARGUMENT, ALREADY_EXISTS, DATA_LOSS, RESOURCE_EXHAUSTED as
  // in shard_data.proto; ABORTED when the stream is over. None is added if one has another checksum
  // or does not fit its parameter, else those before the first refused. Payloads are read now.
  absl::Status AddChunks(PushStreamId stream, absl::Span<const proto::ChunkView> chunks);
  // INVALID_ARGUMENT naming the first parameter that is neither complete nor missing; nothing
  // changed then. Repeatable. A lane's says only that it brings nothing more.
  absl::Status Finish(PushStreamId stream, const v1::PushFinish& finish);
  void Close(PushStreamId stream);

  // Step thread.

  // Allocates a sum for each of the job's parameters on `shard`, in place of an earlier
  // reservation's. RESOURCE_EXHAUSTED with the arithmetic; nothing is reserved then.
  absl::Status Reserve(const v1::RegisterBody& registration, uint32_t shard);
  // RESOURCE_EXHAUSTED with the arithmetic if staging has no room for so many workers.
  absl::Status CheckWorkers(uint32_t world_size) const;
  // The job's groups and workers as they are from now on.
  void Adopt(const v1::RegisterBody& job);
  // Forgets the plan; until the next one, pushes of `expected.step` are UNAVAILABLE.
  void ExpectStep(ExpectedStep expected);
  // Ends the streams of the generation before with ABORTED and, if rule 8 allows, keeps what they
  // pushed.
  void BeginFolding(const v1::StepPlan& plan, uint64_t generation);
  // The plan in folding, or already folded, has a new (ballot, round) and nothing else.
  void Restamp(const v1::StepPlan& plan);
  // Divides one sum and appends it, after on_parameter_folded. False if nothing was appended: none
  // is there, it was done before, or another generation has begun since.
  bool FinishParameter(uint64_t generation, uint32_t parameter_id, const AppendSlice& append);
  // Divides the other sums and describes all; `plan` stays empty. Once, after
  // on_folded(generation); absent if another generation has begun since.
  std::optional<v1::Prepared> FinishSums(uint64_t generation);
  // Every finished gradient of `generation` that FinishParameter did not append, by parameter id,
  // then offset; nothing once another generation has begun.
  void AppendGradient(uint64_t generation, const AppendSlice& append);
  // Where a journal's gradients are read back to; absent for a parameter of another shard.
  std::optional<absl::Span<float>> restorable_sum(uint32_t parameter_id);
  // As if `plan` had been folded to what restorable_sum holds now, and `facts` were of it.
  // DATA_LOSS naming a parameter that they leave out.
  absl::Status RestoreFolded(const v1::StepPlan& plan, uint64_t generation,
                             const v1::Prepared& facts);
  // The finished gradient; empty if the parameter is left alone ([T7]).
  absl::Span<const float> gradient(uint32_t parameter_id) const;
  // The gradient that a decision to apply `generation` will step the parameter with, its clip
  // factor 1 whatever is decided. Empty if it is not finished, is clipped, or lets the step be
  // skipped.
  absl::Span<const float> UnclippedGradient(uint64_t generation, uint32_t parameter_id) const;
  // As which it was pushed first; unspecified if no worker had one.
  v1::DType gradient_dtype(uint32_t parameter_id) const;
  // Ends every stream and refuses new ones with `status`.
  void CloseAll(const absl::Status& status);

  // Members of the plan that have not finished, ascending; none if nothing is waited for.
  std::vector<uint32_t> AwaitedRanks() const;
  // Bytes one rank may have waiting.
  uint64_t staging_window_bytes() const {
    MutexLock lock(mu_);
    return WindowLocked();
  }

 private:
  struct Parameter {
    tier::Pin pin;
    bool frozen = false;
    Mutex mu;
    // Contributions are taken for this generation only; 0 for none.
    uint64_t generation ABSL_GUARDED_BY(mu) = 0;
    std::unique_ptr<ParameterFold> fold ABSL_PT_GUARDED_BY(mu);
    // on_parameter_folded was called for the generation.
    bool announced ABSL_GUARDED_BY(mu) = false;
    // And its gradient was appended.
    bool appended ABSL_GUARDED_BY(mu) = false;
  };
  struct Worker {
    v1::Member member;
    bool finished = false;
    std::optional<double> loss;
    // Of the window: what waits, and the chunk that is being added.
    uint64_t staged_bytes = 0;
    std::optional<PushStreamId> stream;
  };
  // Calls to be made once no lock is held.
  using Calls = PushRegistry::Calls;

  absl::Status CheckOpenLocked(const v1::PushOpen& open) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t WindowLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What is left of a worker's window.
  uint64_t RoomLocked(const Worker& worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Parameter*> FindParameterLocked(uint32_t parameter_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckAllSentLocked(uint32_t rank, const v1::PushFinish& finish)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleaseLocked(const std::vector<ReleasedBytes>& released, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of a chunk that was counted and then refused.
  void ForgetRefusedLocked(uint32_t rank, PushStreamId stream, uint64_t bytes, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CreditLocked(const Worker& worker, uint64_t bytes, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndStreamsLocked(const absl::Status& status, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Number of members whose contributions to the plan before are kept for `plan`.
  size_t KeptMembersLocked(const v1::StepPlan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ResetWorkersLocked(size_t kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckFoldedLocked(Calls* calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Says so once no contribution to it can come any more.
  void CheckSettledLocked(Parameter& parameter, uint64_t generation, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parameter.mu);
  // False if there was nothing to append.
  static bool AppendLocked(Parameter& parameter, journal::GradientSlice slice,
                           const AppendSlice& append) ABSL_EXCLUSIVE_LOCKS_REQUIRED(parameter.mu);
  bool IsActiveLocked(const Parameter& parameter) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleaseReservation();

  const Options options_;

  // Step thread, before the job is expected.
  std::map<uint32_t, std::unique_ptr<Parameter>> parameters_;
  v1::RegisterBody registration_;
  std::vector<Reduction> reductions_;

  // Taken before a parameter's lock, never inside one.
  mutable Mutex mu_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  // Not that of `registration_`, once it was changed.
  uint32_t world_size_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<ExpectedStep> expected_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::StepPlan> plan_ ABSL_GUARDED_BY(mu_);
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  // on_folded was called for the generation.
  bool folded_ ABSL_GUARDED_BY(mu_) = false;
  // By rank.
  std::map<uint32_t, Worker> workers_ ABSL_GUARDED_BY(mu_);
  PushRegistry streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_GRADIENT_ACCUMULATOR_H_
