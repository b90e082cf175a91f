// Adds a received piece of one worker's gradient to a sum in fp32, and measures the piece in the
// same pass. Pure functions; any thread.
#ifndef KAON_KERNELS_REDUCE_FOLD_H_
#define KAON_KERNELS_REDUCE_FOLD_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace kaon::kernels {

// Folds a gradient g, the fp32 values of `src`, into a sum:
//     acc[i] <- first ? weight * g[i] : fma(weight, g[i], acc[i])
// Returns the index of the first non-finite g[i], or -1; accumulates all the same.
// Adds the squares of g to *sum_squares, in blocks of kFoldBlockElements, to about fp32's precision
// at any size. The result is not finite if an element is not.
int64_t FoldElements(DType dtype, const std::byte* src, float weight, bool first,
                     absl::Span<float> acc, double* sum_squares);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_FOLD_H_
