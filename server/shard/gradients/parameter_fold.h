// Summing the contributions to one parameter in one step: each exactly once, in (rank, micro-batch)
// order whatever the order of arrival, so that the sum's bits do not depend on timing (protocol.md
// section 2, PUSH). What comes early waits in staging. Owned by GradientAccumulator, which holds
// the parameter's lock around every call.
#ifndef KAON_SERVER_SHARD_GRADIENTS_PARAMETER_FOLD_H_
#define KAON_SERVER_SHARD_GRADIENTS_PARAMETER_FOLD_H_

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_data.pb.h"
#include "kaon/v1/tensor.pb.h"
#include "kernels/backend.h"
#include "proto/tensor_stream.h"
#include "server/shard/gradients/reduction.h"

namespace kaon::shard {

// Payload bytes of one rank that left staging, or never entered it.
struct ReleasedBytes {
  uint32_t rank = 0;
  uint64_t bytes = 0;
};

// What a sum is divided by to be the gradient.
struct Divisors {
  float total_weight = 1;
  float loss_scale = 1;
};

class ParameterFold {
 public:
  // `name` is for messages. `sum` and `backend` outlive this object; sum.size() is the parameter's
  // element count.
  ParameterFold(uint32_t parameter_id, std::string name, absl::Span<float> sum,
                kernels::Backend* backend);

  // Forgets everything and expects the contributions of `members`, ordered by rank, each with its
  // micro-batches. Loading weights takes them as they are: weight 1.
  void Expect(absl::Span<const v1::Member> members, bool loading_weights);

  // Keeps what the first `num_members` members of the last Expect sent and replaces the others by
  // `members`' rest. Only when HasFoldedBeyond(num_members) is false (protocol.md 2.1 rule 8).
  void ReplaceMembersFrom(size_t num_members, absl::Span<const v1::Member> members);
  bool HasFoldedBeyond(size_t num_members) const;

  // As if `members` had sent what made the gradient that the sum holds now, and Finish had given
  // `sums`; or nothing, if that is missing.
  void Restore(absl::Span<const v1::Member> members, bool loading_weights,
               const v1::ParameterSums& sums);

  // Adds one chunk whose checksum is right, and appends to `released` what no longer waits, this
  // chunk included unless it waits. INVALID_ARGUMENT (gap, overlap, micro-batch), ALREADY_EXISTS
  // (other bytes), RESOURCE_EXHAUSTED (it would have to wait, and `staging_room` bytes are too
  // few).
  absl::Status Add(uint32_t rank, const v1::TensorChunk& chunk, proto::Slices payload,
                   uint64_t staging_room, std::vector<ReleasedBytes>* released);

  // INVALID_ARGUMENT naming what is missing when `rank` sent neither all of each micro-batch nor,
  // with `missing`, nothing.
  absl::Status CheckFinished(uint32_t rank, bool missing) const;
  // `rank` has no gradient; later ranks need not wait for it.
  void MarkMissing(uint32_t rank, std::vector<ReleasedBytes>* released);

  // Every contribution is folded or missing.
  bool IsComplete() const;
  // As IsComplete, and no rank can still say that it is missing one.
  bool IsSettled() const;
  // Divides ([T2]) and describes the sum, once complete; called again, only says it again. Nothing
  // is added any more then.
  const v1::ParameterSums& Finish(const Divisors& divisors, const Reduction& reduction = {});
  bool finished() const { return finished_.has_value(); }
  // Adds to each rank's entry the sum of squares of what was folded of it, before it is weighted:
  // in the order of the contributions, over blocks that begin where a chunk does, whatever the
  // order of arrival. Nothing after Restore, and of weights.
  void AddSumSquares(std::map<uint32_t, double>* of_rank) const;
  // Of the gradient, after Finish; 0 if it is missing.
  uint64_t gradient_digest() const { return gradient_digest_; }

  // Lowest rank with a NaN or infinity; -1 if only the sum has one; absent if all is finite. After
  // Finish.
  std::optional<int32_t> first_non_finite_rank() const;

  // What `rank` need not send again.
  void AppendReceived(uint32_t rank,
                      google::protobuf::RepeatedPtrField<v1::ReceivedChunks>* received) const;

  // Bytes of `rank` that wait.
  uint64_t StagedBytes(uint32_t rank) const;

  uint32_t parameter_id() const { return parameter_id_; }
  const std::string& name() const { return name_; }
  absl::Span<const float> sum() const { return sum_; }
  // After Finish: no worker sent any, and zeros do not stand in for it.
  bool missing() const { return !is_zero_ && Previous(contributions_.size()) == nullptr; }
  // Of what came first in (rank, micro-batch) order; unspecified before.
  v1::DType first_dtype() const;

 private:
  // A chunk that was taken, for telling a repetition from other bytes.
  struct Taken {
    uint64_t end = 0;
    uint32_t crc32c = 0;
    v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  };
  struct Staged {
    uint64_t offset = 0;
    uint64_t num_elements = 0;
    kernels::DType dtype = kernels::DType::kFloat32;
    std::vector<std::byte> bytes;
    // Of the bytes, as the worker took it.
    uint32_t crc32c = 0;
  };
  struct Contribution {
    uint32_t rank = 0;
    uint32_t micro_batch = 0;
    float weight = 1;
    // Elements taken, and of these elements added to the sum.
    uint64_t received = 0;
    uint64_t folded = 0;
    bool missing = false;
    // Of the values folded.
    double sum_squares = 0;
    std::vector<Taken> taken;
    // Allocates nothing while it is empty: there are as many as ranks and micro-batches.
    std::list<Staged> staged;
  };

  void AppendContributions(absl::Span<const v1::Member> members, bool loading_weights);
  // OK, with true for a repetition of a chunk that was taken.
  absl::StatusOr<bool> CheckOrder(const Contribution& contribution,
                                  const v1::TensorChunk& chunk) const;
  // The nearest earlier contribution that is not missing; null if there is none.
  const Contribution* Previous(size_t index) const;
  void Fold(size_t index, kernels::DType dtype, uint64_t offset, proto::Slices payload);
  // Ends the process unless the chunk is as it was taken (P10: after the last copy). A sum cannot
  // be undone, and what is in memory is suspect: a restarted shard is sent everything again.
  void CheckStaged(const Contribution& contribution, const Staged& chunk) const;
  // Folds staged chunks of contributions from `index` on whose turn has come.
  void Drain(size_t index, std::vector<ReleasedBytes>* released);
  // Index of the first contribution at or after (rank, micro_batch).
  size_t LowerBound(uint32_t rank, uint32_t micro_batch) const;
  absl::Status Invalid(const Contribution& contribution, const std::string& why) const;

  const uint32_t parameter_id_;
  const std::string name_;
  const absl::Span<float> sum_;
  kernels::Backend* const backend_;

  // In (rank, micro-batch) order.
  std::vector<Contribution> contributions_;
  bool loading_weights_ = false;
  bool restored_ = false;
  // Lowest rank a non-finite element came from.
  std::optional<uint32_t> non_finite_rank_;
  bool sum_is_finite_ = true;
  // Nothing was sent and the sum is zeros ([T7]).
  bool is_zero_ = false;
  std::optional<v1::ParameterSums> finished_;
  uint64_t gradient_digest_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_PARAMETER_FOLD_H_
