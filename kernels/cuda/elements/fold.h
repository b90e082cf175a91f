// Adds a chunk of a gradient to a sum in device memory: Accumulation::Fold on a device, with the
// CPU's bits. One thread at a time per stream.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_FOLD_H_
#define KAON_KERNELS_CUDA_ELEMENTS_FOLD_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/dtype.h"

namespace kaon::kernels::cuda {

// FoldFacts of one contribution in device memory; the caller zeroes it before the first chunk.
struct FoldSums {
  double sum_squares;
  uint32_t non_finite;
  uint32_t unused;
};

struct FoldChunkArguments {
  DType dtype;
  // The chunk in device memory, at any alignment. 16 bytes are fastest, for `sum` too.
  const void* from;
  float weight;
  // True: the old values of `sum` are not read.
  bool first;
  // Elements of the sum that the chunk is added to.
  float* sum;
  int64_t num_elements;
  FoldSums* facts;
  // Scratch of NumFoldBlocks doubles.
  double* block_squares;
};

// Returns the number of blocks of kFoldBlockElements in a chunk.
int64_t NumFoldBlocks(int64_t num_elements);

void FoldChunk(Stream& stream, const FoldChunkArguments& chunk);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_FOLD_H_
