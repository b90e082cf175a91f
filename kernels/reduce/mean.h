// The last pass over a sum of gradients: turns it into the mean, block by block. The facts about a
// block are computed while it is in the first-level cache. Pure functions; any thread, on disjoint
// memory.
#ifndef KAON_KERNELS_REDUCE_MEAN_H_
#define KAON_KERNELS_REDUCE_MEAN_H_

#include "absl/types/span.h"
#include "kernels/accumulation.h"
#include "kernels/cpu/thread_pool.h"

namespace kaon::kernels {

// Implements Accumulation::FinishMean on the threads of `pool`, with the bits of one thread.
MeanFacts FinishMeanOn(ThreadPool& pool, const MeanScalars& scalars, absl::Span<float> sum);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_MEAN_H_
