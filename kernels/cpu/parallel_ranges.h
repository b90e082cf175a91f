// Element-wise work on a long array, in pieces of a fixed size for a pool of threads. No result
// depends on the number of threads. Pure functions; any thread.
#ifndef KAON_KERNELS_CPU_PARALLEL_RANGES_H_
#define KAON_KERNELS_CPU_PARALLEL_RANGES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/update.h"

namespace kaon::kernels {

// Calls run(begin, end) for each piece of [0, n).
template <typename Run>
void ForEachRange(ThreadPool& pool, int64_t n, int64_t piece, const Run& run) {
  pool.ParallelFor((n + piece - 1) / piece,
                   [&](int64_t i) { run(i * piece, std::min(n, (i + 1) * piece)); });
}

// Merges the results of run(begin, end) for each piece: adds the digests, whose order does not
// matter (digest.h), and keeps the largest weight.
template <typename Run>
UpdateResult SumOverRanges(ThreadPool& pool, int64_t n, int64_t piece, const Run& run) {
  std::vector<UpdateResult> results((n + piece - 1) / piece);
  ForEachRange(pool, n, piece,
               [&](int64_t begin, int64_t end) { results[begin / piece] = run(begin, end); });
  UpdateResult sum;
  for (const UpdateResult& result : results) {
    sum.weights_digest += result.weights_digest;
    sum.slots_digest += result.slots_digest;
    sum.largest_weight_bits = std::max(sum.largest_weight_bits, result.largest_weight_bits);
  }
  return sum;
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_CPU_PARALLEL_RANGES_H_
