// The fixed order of the sum of squares of a gradient (numerics.md, formula [C1]), for the CPU's
// loop and for kernels of a device. Abseil-free. Pure functions; any thread.
#ifndef KAON_KERNELS_REDUCE_NORM_ORDER_H_
#define KAON_KERNELS_REDUCE_NORM_ORDER_H_

#include <cstdint>

#include "kernels/host_device.h"

namespace kaon::kernels {

// Elements per block of the sum of squares. A block has 8 interleaved fp64 lanes, added pairwise at
// its end. The sums of the blocks are added in ascending order.
inline constexpr int64_t kNormBlockElements = 4096;
inline constexpr int kNormLanes = 8;

KAON_HOST_DEVICE double SumOfNormLanes(const double* lane) {
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

// Elements per piece of the norm of a matrix; the sums of the pieces are added in ascending order.
inline constexpr int64_t kNormPiece = 32768;
static_assert(kNormPiece % kNormBlockElements == 0, "a piece is whole blocks");

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_NORM_ORDER_H_
