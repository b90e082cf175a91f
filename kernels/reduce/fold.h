// Adds a piece of one worker's gradient, as it came over the wire, to a sum in fp32; and, in the
// same pass, says how large it is. Pure functions; any thread.
#ifndef KAON_KERNELS_REDUCE_FOLD_H_
#define KAON_KERNELS_REDUCE_FOLD_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace kaon::kernels {

// As Backend::Fold says.
int64_t FoldElements(DType dtype, const std::byte* src, float weight, bool first,
                     absl::Span<float> acc, double* sum_squares);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_FOLD_H_
