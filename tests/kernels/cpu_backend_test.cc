#include "kernels/cpu_backend.h"

#include <gtest/gtest.h>

#include <memory>

#include "kernels/reference_gemm.h"
#include "tests/conformance/backend_conformance.h"

namespace kaon::kernels {
namespace {

std::unique_ptr<Backend> MakeReferenceBackend() {
  return std::make_unique<CpuBackend>(std::make_unique<ReferenceGemm>());
}

INSTANTIATE_TEST_SUITE_P(CpuReference, BackendConformanceTest,
                         ::testing::Values(&MakeReferenceBackend));

TEST(CpuBackendTest, NamesItsProducts) {
  EXPECT_EQ(MakeReferenceBackend()->name(), "cpu/reference");
}

}  // namespace
}  // namespace kaon::kernels
