// Sums the gradients that workers push for one step, in rank order (room 4 of a gradient's life).
// It checks jobs, plans, attempts and credit; ParameterFold does the arithmetic. Owned by
// ShardCore. Push calls: any thread. Methods below "Step thread": the thread that drives the core.
#ifndef KAON_SERVER_SHARD_GRADIENTS_GRADIENT_ACCUMULATOR_H_
#define KAON_SERVER_SHARD_GRADIENTS_GRADIENT_ACCUMULATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_data.pb.h"
#include "kernels/backend.h"
#include "kernels/mutex.h"
#include "kernels/region.h"
#include "proto/tensor_stream.h"
#include "server/journal/record.h"
#include "server/shard/gradients/gradient_accumulator_options.h"
#include "server/shard/gradients/open_push.h"
#include "server/shard/gradients/push_registry.h"
#include "server/shard/gradients/reduction.h"
#include "server/shard/gradients/summed_parameter.h"

namespace kaon::shard {

class GradientAccumulator {
 public:
  using AppendSlice = std::function<void(const journal::GradientSlice& slice)>;

  using Options = GradientAccumulatorOptions;

  explicit GradientAccumulator(Options options);
  ~GradientAccumulator();

  // Ends the rank's earlier stream, unless this is a lane of it (PushRegistry::Join). Returns
  // FAILED_PRECONDITION naming both for an older step or timeline, UNAVAILABLE for a newer one or
  // without a plan. Returns NOT_FOUND (other job), ABORTED (other attempt planned),
  // INVALID_ARGUMENT (no such rank), or CloseAll's.
  absl::StatusOr<OpenPush> Open(const v1::PushOpen& open, PushCallbacks callbacks);
  // Adds the chunks of one message and reads their payloads now, from the views or `on_device`, one
  // after another. Adds none if any has a wrong checksum or does not fit its parameter, else those
  // before the first refused chunk. ABORTED: the stream is over; other errors: shard_data.proto.
  absl::Status AddChunks(PushStreamId stream, absl::Span<const proto::ChunkView> chunks,
                         const DeviceBytes& on_device = {});
  // Checks chunks whose payloads follow: the stream is not over, and each fits its parameter.
  absl::Status CheckHeaders(PushStreamId stream,
                            absl::Span<const v1::TensorChunk* const> chunks) const;
  // Returns INVALID_ARGUMENT naming the first parameter neither complete nor missing, and changes
  // nothing then. Repeatable. On a lane, it only says that the lane sends nothing more.
  absl::Status Finish(PushStreamId stream, const v1::PushFinish& finish);
  void Close(PushStreamId stream);

  // Step thread.

  // Frees all sums. Allocates one for each parameter on `shard`, swapped for those of `on_disk`.
  // Returns RESOURCE_EXHAUSTED with the arithmetic, and then reserves nothing.
  absl::Status Reserve(const v1::RegisterBody& registration, uint32_t shard,
                       const std::set<uint32_t>& on_disk = {});
  // Allocates another sum for a parameter, and uses it between two plans. Errors as of Reserve.
  absl::StatusOr<std::unique_ptr<SumMemory>> ReserveSum(uint32_t parameter_id, bool on_disk) const;
  void ReplaceSum(uint32_t parameter_id, std::unique_ptr<SumMemory> sum);
  bool IsOnDisk(uint32_t parameter_id) const;
  // Frees all sums; no job may be expected.
  void FreeSums();
  // Frees everything, because `job` was deleted: pushes get NOT_FOUND, and open ones end with it.
  void Release(const std::string& job);
  // Returns RESOURCE_EXHAUSTED with the arithmetic if staging is too small for `world_size`.
  absl::Status CheckWorkers(uint32_t world_size) const;
  // Uses the groups and workers of `job` from now on.
  void Adopt(const v1::RegisterBody& job);
  // Forgets the plan. Until the next one, pushes of `expected.step` get UNAVAILABLE.
  void ExpectStep(ExpectedStep expected);
  // Ends streams of earlier generations with ABORTED. Keeps their contributions if they are a
  // rank-order prefix of unchanged attempts (protocol.md 2.1 rule 8).
  void BeginFolding(const v1::StepPlan& plan, uint64_t generation);
  // Replaces (ballot, round) of the plan, folding or folded; nothing else changes.
  void Restamp(const v1::StepPlan& plan);
  // Divides one sum and appends it; call after on_parameter_folded. Returns false without an
  // append: no gradient, appended before, or `generation` is over.
  bool FinishParameter(uint64_t generation, uint32_t parameter_id, const AppendSlice& append);
  // Divides the other sums and describes all; `plan` stays empty. Call once, after on_folded.
  // Returns nothing if `generation` is over.
  std::optional<v1::Prepared> FinishSums(uint64_t generation);
  // Appends every finished gradient that FinishParameter did not, unless `generation` is over.
  void AppendGradient(uint64_t generation, const AppendSlice& append);
  kernels::Backend& backend() const { return *options_.backend; }
  // Elements of the sum; absent for a parameter of another shard.
  std::optional<uint64_t> num_elements(uint32_t parameter_id) const;
  // Writes values of a replayed gradient.
  void RestoreValues(uint32_t parameter_id, uint64_t offset, absl::Span<const float> values);
  // Restores `plan` as folded, with these values. DATA_LOSS names a parameter that `facts` lack.
  absl::Status RestoreFolded(const v1::StepPlan& plan, uint64_t generation,
                             const v1::Prepared& facts);
  // Returns the finished gradient. May read it from a disk, and return the disk's errors.
  absl::StatusOr<PinnedGradient> Gradient(uint32_t parameter_id) const;
  // Returns how many of these, from the first one on, may be pinned at once; at least 1.
  size_t NumPinnable(absl::Span<const uint32_t> parameter_ids) const;
  // Reads gradients of a disk ahead, in this order.
  void Prefetch(absl::Span<const uint32_t> parameter_ids);
  // Says that nobody needs this gradient any more.
  void Discard(uint32_t parameter_id);
  // Returns the gradient that a decision to apply `generation` will use. Empty unless it is
  // finished, finite, in memory, and no decision can clip it or skip the step for it.
  kernels::ConstRegion UnclippedGradient(uint64_t generation, uint32_t parameter_id) const;
  // Dtype of the gradient as first pushed; unspecified if no worker pushed one.
  v1::DType gradient_dtype(uint32_t parameter_id) const;
  // Ends every stream, and refuses new ones, with `status`.
  void CloseAll(const absl::Status& status);

  // Returns the members that have not finished, ascending; none if nothing is awaited.
  std::vector<uint32_t> AwaitedRanks() const;
  // Bytes that one rank may have in staging.
  uint64_t staging_window_bytes() const {
    MutexLock lock(mu_);
    return WindowLocked();
  }

 private:
  using Parameter = SummedParameter;
  struct Worker {
    v1::Member member;
    bool finished = false;
    std::optional<double> loss;
    // Bytes of the window in use: staged, plus the chunk being added.
    uint64_t staged_bytes = 0;
    std::optional<PushStreamId> stream;
  };
  // Callbacks to invoke without a lock held.
  using Calls = PushRegistry::Calls;

  absl::StatusOr<std::unique_ptr<SumMemory>> ReserveSum(const v1::JobDefinition& job, uint32_t id,
                                                        bool on_disk) const;
  void UseSum(Parameter& parameter, uint32_t id, const std::string& name,
              std::unique_ptr<SumMemory> sum);
  absl::Status CheckOpenLocked(const v1::PushOpen& open) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t WindowLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Bytes left in a worker's window.
  uint64_t RoomLocked(const Worker& worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::shared_ptr<Parameter>> FindParameterLocked(uint32_t parameter_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckAllSentLocked(uint32_t rank, const v1::PushFinish& finish)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleaseLocked(const std::vector<ReleasedBytes>& released, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the window bytes of a refused chunk.
  void ForgetRefusedLocked(uint32_t rank, PushStreamId stream, uint64_t bytes, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CreditLocked(const Worker& worker, uint64_t bytes, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndStreamsLocked(const absl::Status& status, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Number of leading members whose contributions are kept for `plan`.
  size_t KeptMembersLocked(const v1::StepPlan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ResetWorkersLocked(size_t kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckFoldedLocked(Calls* calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Announces the parameter if nothing more can arrive for it.
  void CheckSettledLocked(Parameter& parameter, uint64_t generation, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parameter.mu);
  const v1::ParameterSums& FinishLocked(Parameter& parameter, const Divisors& divisors)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parameter.mu);
  // False: nothing to append.
  bool AppendLocked(Parameter& parameter, journal::GradientSlice slice, const AppendSlice& append)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parameter.mu);
  bool IsActiveLocked(const Parameter& parameter) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;

  // Written by the step thread, while no job is expected. Pushes share both: AddChunks may be in
  // progress while Release removes them. Its parameters then have another generation.
  std::map<uint32_t, std::shared_ptr<Parameter>> parameters_;
  std::shared_ptr<const v1::RegisterBody> registration_ = std::make_shared<v1::RegisterBody>();
  std::vector<Reduction> reductions_;

  // Acquired before a parameter's lock, never inside one.
  mutable Mutex mu_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  // Differs from that of `registration_` after a change of workers.
  uint32_t world_size_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<ExpectedStep> expected_ ABSL_GUARDED_BY(mu_);
  std::string deleted_job_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::StepPlan> plan_ ABSL_GUARDED_BY(mu_);
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  // on_folded was called for the generation.
  bool folded_ ABSL_GUARDED_BY(mu_) = false;
  // Keyed by rank.
  std::map<uint32_t, Worker> workers_ ABSL_GUARDED_BY(mu_);
  PushRegistry streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_GRADIENT_ACCUMULATOR_H_
