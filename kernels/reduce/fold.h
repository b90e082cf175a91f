// Adds a received piece of one worker's gradient to a sum in fp32, and measures the piece in the
// same pass. Pure functions; any thread.
#ifndef KAON_KERNELS_REDUCE_FOLD_H_
#define KAON_KERNELS_REDUCE_FOLD_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace kaon::kernels {

// Implements Backend::Fold.
int64_t FoldElements(DType dtype, const std::byte* src, float weight, bool first,
                     absl::Span<float> acc, double* sum_squares);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_FOLD_H_
