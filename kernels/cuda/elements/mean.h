// Turns a sum in device memory into the mean gradient: Accumulation::FinishMean on a device, with
// the CPU's bits. One thread at a time per stream.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_MEAN_H_
#define KAON_KERNELS_CUDA_ELEMENTS_MEAN_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/reduce/division.h"
#include "kernels/reduce/grad_norm.h"

namespace kaon::kernels::cuda {

// Facts about a mean, as the kernel leaves them. The sums of squares of its norm blocks follow.
struct MeanSums {
  uint64_t digest;
  uint64_t num_zeros;
  uint64_t num_non_finite;
  // Bits of the largest magnitude without NaN.
  uint32_t largest_bits;
  uint32_t unused;
};

struct FinishMeanArguments {
  float* sum;
  int64_t num_elements;
  // sum[i] <- (sum[i] / total_weight) / loss_scale.
  Division total_weight;
  Division loss_scale;
  // TensorDigestKey of the gradient.
  uint64_t key;
  // False: sum_squares is 0.
  bool takes_sum;
  // Receives MeanFactsBytes bytes in device memory, 8-byte aligned.
  std::byte* facts;
};

int64_t MeanFactsBytes(int64_t num_elements);

void FinishMean(Stream& stream, const FinishMeanArguments& mean);

// Adds up the facts of `num_elements`, copied to the host, in the CPU's order. The digest is in
// their MeanSums.
GradNorm NormOfFacts(const std::byte* facts, int64_t num_elements);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_MEAN_H_
