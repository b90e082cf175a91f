// One whole update of one parameter by Muon on the CPU (formulas [M1]-[M6]): momentum, direction,
// orthogonalization, scale, decay. Pure function over borrowed buffers; any thread, on disjoint
// buffers of host memory, as far as the Gemm allows.
#ifndef KAON_KERNELS_CPU_MUON_STEP_H_
#define KAON_KERNELS_CPU_MUON_STEP_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace kaon::kernels {

// If a parameter has several matrices, those of at most this many elements are stepped one per
// thread.
inline constexpr int64_t kSmallMatrixElements = kSmallUpdateElements;

// Implements Backend::ApplyUpdate; the caller has checked the sizes.
UpdateResult ApplyMuon(const MuonConfig& config, const UpdateScalars& scalars,
                       absl::Span<const uint64_t> shape, const UpdateBuffers& buffers, Gemm& gemm,
                       ThreadPool& pool);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_CPU_MUON_STEP_H_
