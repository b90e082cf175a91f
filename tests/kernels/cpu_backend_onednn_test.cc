#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cpu_backend.h"
#include "kernels/onednn_gemm.h"
#include "kernels/reference_gemm.h"
#include "kernels/vector_dispatch.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/thread_count_conformance.h"
#include "tests/kernels/instruction_sets.h"

namespace kaon::kernels {
namespace {

std::unique_ptr<Backend> MakeOneDnnBackend() {
  return std::make_unique<CpuBackend>(std::make_unique<OneDnnGemm>());
}

std::unique_ptr<Backend> MakeOneDnnBackendWithPrimitives() {
  ChosenInstructionSet() = WidestInstructionSet();
  return std::make_unique<CpuBackend>(
      std::make_unique<OneDnnGemm>(OneDnnGemm::BFloat16Products::kWherePossible));
}

INSTANTIATE_TEST_SUITE_P(CpuOneDnn, BackendConformanceTest,
                         ::testing::ValuesIn(OnEachInstructionSet(&MakeOneDnnBackend)));
INSTANTIATE_TEST_SUITE_P(CpuOneDnnPrimitives, BackendConformanceTest,
                         ::testing::Values(&MakeOneDnnBackendWithPrimitives));

INSTANTIATE_TEST_SUITE_P(CpuOneDnn, ThreadCountConformanceTest,
                         ::testing::Values(ThreadedBackendMaker([](int threads) {
                                             return std::make_unique<CpuBackend>(
                                                 std::make_unique<OneDnnGemm>(), threads);
                                           }),
                                           ThreadedBackendMaker([](int threads) {
                                             return std::make_unique<CpuBackend>(
                                                 std::make_unique<OneDnnGemm>(
                                                     OneDnnGemm::BFloat16Products::kWherePossible),
                                                 threads);
                                           })));

TEST(CpuBackendOneDnnTest, NamesItsProducts) {
  EXPECT_EQ(MakeOneDnnBackend()->name(), "cpu/onednn");
}

TEST(CpuBackendOneDnnTest, MuonAgreesWithTheReferenceProducts) {
  CpuBackend reference(std::make_unique<ReferenceGemm>());
  const std::unique_ptr<Backend> onednn = MakeOneDnnBackend();
  const std::vector<float> grad = reference::GaussianVector(65 * 130, 1);
  Parameter expected(MuonConfig{}, {65, 130}, std::vector<float>(65 * 130));
  Parameter actual = expected;
  expected.Update(reference, grad, {1.0, 1.0, 1});
  actual.Update(*onednn, grad, {1.0, 1.0, 1});
  EXPECT_LE(reference::RelativeError(actual.weight, reference::Widened(expected.weight)), 1e-5);
}

}  // namespace
}  // namespace kaon::kernels
