// Accumulation: the sum of the gradients of one parameter, under way in a backend's memory. It
// folds chunks, and then turns the sum into the mean gradient. Its creator owns it. Calls for one
// sum come one after the other, on any thread.
#ifndef KAON_KERNELS_ACCUMULATION_H_
#define KAON_KERNELS_ACCUMULATION_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "kernels/reduce/grad_norm.h"
#include "kernels/region.h"

namespace kaon::kernels {

// Divisors that turn a sum into the gradient, and options for the facts about it.
struct MeanScalars {
  float total_weight = 1;
  float loss_scale = 1;
  // Selects the keys of the digest; no number depends on it.
  uint32_t parameter_id = 0;
  // If false, sum_squares stays 0: no decision or report reads the norm of this gradient (rule
  // [T5]).
  bool takes_sum = true;
};

struct MeanFacts {
  GradNorm norm;
  // Digest of the mean by kernels/reduce/digest.h, with slot kGradientSlot.
  uint64_t digest = 0;
};

// Facts about everything folded for one contribution.
struct FoldFacts {
  // Sum of the squares of the folded values, before weighting, to about fp32's precision at any
  // size. Summed in blocks of kFoldBlockElements that begin where a chunk does. Not finite if a
  // value is not.
  double sum_squares = 0;
  bool non_finite = false;
};

// Block size of the sum of squares of a chunk, in elements.
inline constexpr int64_t kFoldBlockElements = 1024;

// One chunk of a gradient g, as received: the fp32 values of the bytes of `slices`, in order, or of
// `memory`. A slice may end inside an element.
struct GradientChunk {
  DType dtype = DType::kFloat32;
  absl::Span<const absl::Span<const std::byte>> slices;
  // First element of the sum that the chunk is added to.
  uint64_t offset = 0;
  // Number of the contribution, counted from 0. Chunks of one contribution come in ascending order.
  uint32_t contribution = 0;
  float weight = 1;
  // True for the first addition to these elements: their old values are not read.
  bool first = false;
  // The chunk in the backend's space, at any alignment and whole elements; `slices` are empty then.
  ConstRegion memory = {};
};

class Accumulation {
 public:
  virtual ~Accumulation() = default;

  // Forgets the facts of all contributions. The sum's contents are undefined until it is written.
  virtual void Begin() = 0;
  // Folds a chunk:  sum[i] <- first ? weight * g[i] : fma(weight, g[i], sum[i])
  // The slices, and the memory, may be reused once it returns.
  virtual void Fold(const GradientChunk& chunk) = 0;
  // Sets the whole sum to zero.
  virtual void SetZero() = 0;
  // Divides the sum: sum[i] <- (sum[i] / total_weight) / loss_scale, each division in fp32 (rule
  // [T2]). A divisor of exactly 1 changes no bit. Returns the facts that ComputeGradNorm and
  // TensorDigest compute of the result, bit for bit.
  virtual MeanFacts FinishMean(const MeanScalars& scalars) = 0;
  // Returns the facts of a contribution; of one without a chunk, zeros. Waits for folds under way.
  virtual FoldFacts FactsOf(uint32_t contribution) const = 0;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ACCUMULATION_H_
