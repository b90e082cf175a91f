// The last pass over a sum of gradients: it becomes the mean, block by block, and everything that
// is said of a block is taken while that is in the first cache. Pure functions; any thread, on
// disjoint memory.
#ifndef KAON_KERNELS_REDUCE_MEAN_H_
#define KAON_KERNELS_REDUCE_MEAN_H_

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/thread_pool.h"

namespace kaon::kernels {

// Backend::FinishMean, spread over `pool`; the bits are those of one thread.
MeanFacts FinishMeanOn(ThreadPool& pool, const MeanScalars& scalars, absl::Span<float> sum);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_MEAN_H_
