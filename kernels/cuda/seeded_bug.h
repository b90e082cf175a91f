// GPU bugs that can be built in, one at a time, to verify that tests find each of them.
// KAON_SEEDED_BUG is the number of the bug in this build. In every product it is 0, and Has() is a
// constant that leaves no trace. Constants only; any thread.
#ifndef KAON_KERNELS_CUDA_SEEDED_BUG_H_
#define KAON_KERNELS_CUDA_SEEDED_BUG_H_

#include "kernels/host_device.h"

#ifndef KAON_SEEDED_BUG
#define KAON_SEEDED_BUG 0
#endif

namespace kaon::kernels::cuda {

// clang-format off
enum class SeededBug {
  kStaleGraphMemory = 301,  // kernels/cuda/muon_runner
  kLastBlockNotMirrored = 302,  // kernels/cuda/mirror
  kWrongBatchStride = 303,  // kernels/cuda/block_addresses
  kSwappedX = 304,  // kernels/cuda/newton_schulz
  kRestartMissing = 305,  // kernels/cuda/newton_schulz
  kStaleGraphConfig = 306,  // kernels/cuda/muon_runner
  kStripMissing = 307,  // kernels/cuda/symmetric_forms
  kDiagonalOfFirstOnly = 308,  // kernels/cuda/iteration_kernels
};
// clang-format on

KAON_HOST_DEVICE constexpr bool Has(SeededBug bug) {
  return static_cast<int>(bug) == KAON_SEEDED_BUG;
}

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_SEEDED_BUG_H_
