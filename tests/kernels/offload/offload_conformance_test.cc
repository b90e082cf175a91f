// The conformance suite over an OffloadBackend whose device runs on the host.
#include <glog/logging.h>

#include <memory>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/gemm/reference_gemm.h"
#include "kernels/offload/offload_backend.h"
#include "tests/conformance/backend/backend_conformance.h"
#include "tests/kernels/cuda/backend_scenario.h"

namespace kaon::kernels {
namespace {

std::unique_ptr<Backend> NewOffload(uint64_t most_staged_bytes) {
  auto backend = OffloadBackend::Create(
      std::make_unique<CpuBackend>(std::make_unique<ReferenceGemm>(), 2),
      cuda::NewBackendOnHost(1, 2), {.most_staged_bytes = most_staged_bytes});
  CHECK(backend.ok()) << backend.status();
  return *std::move(backend);
}

// One update at a time on the device, and about four of the suite's matrices.
INSTANTIATE_TEST_SUITE_P(CudaOnHost, BackendConformanceTest,
                         ::testing::Values([] { return NewOffload(1); },
                                           [] { return NewOffload(64 << 10); }));

}  // namespace
}  // namespace kaon::kernels
