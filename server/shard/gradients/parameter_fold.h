// Sums the contributions to one parameter in one step (protocol.md section 2, PUSH). Adds each
// exactly once, in (rank, micro-batch) order, so the bits do not depend on timing. Early chunks
// wait in staging. Owned by GradientAccumulator, which holds the parameter's lock around every
// call.
#ifndef KAON_SERVER_SHARD_GRADIENTS_PARAMETER_FOLD_H_
#define KAON_SERVER_SHARD_GRADIENTS_PARAMETER_FOLD_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_data.pb.h"
#include "kaon/v1/tensor.pb.h"
#include "kernels/accumulation.h"
#include "kernels/backend.h"
#include "kernels/region.h"
#include "proto/tensor_stream.h"
#include "server/shard/gradients/reduction.h"

namespace kaon::shard {

// Payload bytes of one rank that left staging or bypassed it.
struct ReleasedBytes {
  uint32_t rank = 0;
  uint64_t bytes = 0;
};

// Bytes of chunks in memory that the backend computes on.
struct DeviceBytes {
  kernels::ConstRegion memory;
  // Digest of all, with the first chunk's parameter and kTransferSlot (device_link.h).
  uint64_t digest = 0;
};

// A sum divided by these is the gradient.
struct Divisors {
  float total_weight = 1;
  float loss_scale = 1;
};

class ParameterFold {
 public:
  // `name` is for messages. `sum`, in the backend's space, and `backend` outlive this object;
  // sum.num_floats() is the parameter's element count.
  ParameterFold(uint32_t parameter_id, std::string name, kernels::Region sum,
                kernels::Backend& backend);

  // Clears everything and expects contributions of `members`, ordered by rank, each with its
  // micro-batches. Weights that are loaded are not scaled: weight 1.
  void Expect(absl::Span<const v1::Member> members, bool loading_weights);

  // Keeps the contributions of the first `num_members` members of the last Expect and replaces the
  // other members. Requires that HasFoldedBeyond(num_members) is false (protocol.md 2.1 rule 8).
  void ReplaceMembersFrom(size_t num_members, absl::Span<const v1::Member> members);
  bool HasFoldedBeyond(size_t num_members) const;

  // Restores the state after `members` sent the gradient that the sum holds now and Finish returned
  // `sums`. If the gradient is missing, the members sent nothing.
  void Restore(absl::Span<const v1::Member> members, bool loading_weights,
               const v1::ParameterSums& sums);

  // Adds one chunk whose checksum is right. Appends bytes that no longer wait to `released`,
  // including this chunk unless it is staged. Returns INVALID_ARGUMENT (gap, overlap, micro-batch),
  // ALREADY_EXISTS (other bytes), or RESOURCE_EXHAUSTED (the chunk must wait, but exceeds
  // `staging_room` bytes). A chunk that AddFolds may be `on_device`, in place of `payload`.
  absl::Status Add(uint32_t rank, const v1::TensorChunk& chunk, proto::Slices payload,
                   uint64_t staging_room, std::vector<ReleasedBytes>* released,
                   const DeviceBytes& on_device = {});

  // Returns whether Add, MarkMissing or Finish would touch the sum; false also for what they
  // refuse.
  bool AddFolds(uint32_t rank, const v1::TensorChunk& chunk) const;
  bool MarkMissingFolds() const;
  bool FinishWrites(const Reduction& reduction) const;

  // Checks that `rank` sent all of each micro-batch, or with `missing` nothing. Returns
  // INVALID_ARGUMENT naming what is absent.
  absl::Status CheckFinished(uint32_t rank, bool missing) const;
  // Marks the gradient of `rank` as missing; later ranks do not wait for it.
  void MarkMissing(uint32_t rank, std::vector<ReleasedBytes>* released);

  // Returns true if every contribution is folded or missing.
  bool IsComplete() const;
  // Like IsComplete, and no rank can still report a missing gradient.
  bool IsSettled() const;
  // Divides the sum ([T2]) and describes it. Requires IsComplete; accepts no chunk afterwards.
  // Later calls return the same description.
  const v1::ParameterSums& Finish(const Divisors& divisors, const Reduction& reduction = {});
  bool finished() const { return finished_.has_value(); }
  // Adds to each rank's entry the sum of squares of its folded values, before weighting. The order
  // is that of contributions, in blocks that begin where a chunk does, so arrival order does not
  // matter. Adds nothing after Restore or for weights.
  void AddSumSquares(std::map<uint32_t, double>* of_rank) const;
  // Digest of the gradient, after Finish; 0 if it is missing.
  uint64_t gradient_digest() const { return gradient_digest_; }

  // After Finish: lowest rank that sent a NaN or infinity; -1 if only the sum has one; absent if
  // all is finite.
  std::optional<int32_t> first_non_finite_rank() const;

  // Appends the chunks that `rank` need not resend.
  void AppendReceived(uint32_t rank,
                      google::protobuf::RepeatedPtrField<v1::ReceivedChunks>* received) const;

  // Staged bytes of `rank`.
  uint64_t StagedBytes(uint32_t rank) const;

  uint32_t parameter_id() const { return parameter_id_; }
  const std::string& name() const { return name_; }
  kernels::ConstRegion sum() const { return sum_; }
  // After Finish: true if no worker sent a gradient and zeros do not replace it.
  bool missing() const { return !is_zero_ && Previous(contributions_.size()) == nullptr; }
  // Dtype of the first contribution in (rank, micro-batch) order; unspecified if there is none.
  v1::DType first_dtype() const;

 private:
  // An accepted chunk, to tell a repetition from other bytes.
  struct Taken {
    uint64_t end = 0;
    // CRC32C, or the digest of a chunk that was folded on the device.
    uint64_t checksum = 0;
    v1::DType dtype = v1::DTYPE_UNSPECIFIED;
    bool is_digest = false;
  };
  struct Staged {
    uint64_t offset = 0;
    uint64_t num_elements = 0;
    kernels::DType dtype = kernels::DType::kFloat32;
    std::vector<std::byte> bytes;
    // CRC32C of the bytes, as the worker computed it.
    uint32_t crc32c = 0;
  };
  struct Contribution {
    uint32_t rank = 0;
    uint32_t micro_batch = 0;
    float weight = 1;
    // Elements accepted; of these, elements added to the sum.
    uint64_t received = 0;
    uint64_t folded = 0;
    bool missing = false;
    // Sum of squares of the folded values, once finished.
    double sum_squares = 0;
    std::vector<Taken> taken;
    // A list, which allocates nothing while empty: one exists per rank and micro-batch.
    std::list<Staged> staged;
  };

  // Forgets all contributions and the result.
  void Clear();
  void AppendContributions(absl::Span<const v1::Member> members, bool loading_weights);
  // Returns true for a repetition of an accepted chunk.
  absl::StatusOr<bool> CheckOrder(const Contribution& contribution, const v1::TensorChunk& chunk,
                                  proto::Slices payload) const;
  // Returns whether elements up to `end` of a contribution can be folded now.
  bool IsInTurn(size_t index, uint64_t end) const;
  // Returns the nearest earlier contribution that is not missing, or null.
  const Contribution* Previous(size_t index) const;
  void Fold(size_t index, uint64_t end, kernels::GradientChunk chunk);
  // Notes what the sum tells of each contribution.
  void NoteFacts();
  // Aborts the process if a staged chunk changed in memory (P10 checks bytes after the last copy).
  // A sum cannot be undone and this memory is suspect. Workers resend everything to the restarted
  // shard.
  void CheckStaged(const Contribution& contribution, const Staged& chunk) const;
  // Folds staged chunks whose turn has come, of contributions from `index` on.
  void Drain(size_t index, std::vector<ReleasedBytes>* released);
  // Returns the index of the first contribution at or after (rank, micro_batch).
  size_t LowerBound(uint32_t rank, uint32_t micro_batch) const;
  absl::Status Invalid(const Contribution& contribution, const std::string& why) const;

  const uint32_t parameter_id_;
  const std::string name_;
  const kernels::Region sum_;
  const uint64_t num_elements_;
  const std::unique_ptr<kernels::Accumulation> accumulation_;

  // Sorted by (rank, micro-batch).
  std::vector<Contribution> contributions_;
  bool loading_weights_ = false;
  bool restored_ = false;
  // Lowest rank that sent a non-finite element.
  std::optional<uint32_t> non_finite_rank_;
  bool sum_is_finite_ = true;
  // No worker sent a gradient and the sum is zeros ([T7]).
  bool is_zero_ = false;
  std::optional<v1::ParameterSums> finished_;
  uint64_t gradient_digest_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_PARAMETER_FOLD_H_
