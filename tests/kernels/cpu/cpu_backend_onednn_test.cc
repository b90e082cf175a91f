#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/gemm/onednn_gemm.h"
#include "kernels/gemm/reference_gemm.h"
#include "kernels/vector_dispatch.h"
#include "tests/conformance/backend/backend_conformance.h"
#include "tests/conformance/backend/thread_count_conformance.h"
#include "tests/kernels/instruction_sets.h"

namespace kaon::kernels {
namespace {

using Products = OneDnnGemm::BFloat16Products;

std::unique_ptr<Backend> MakeBackend(Products products, int threads) {
  ChosenInstructionSet() = WidestInstructionSet();
  return std::make_unique<CpuBackend>(std::make_unique<OneDnnGemm>(products), threads);
}

std::unique_ptr<Backend> MakeOneDnnBackend() { return MakeBackend(Products::kWhereNative, 1); }

// Runs if the library has bf16 products of its own, even emulated ones. onednn_gemm_test covers the
// rest.
template <typename Maker>
std::vector<Maker> WherePossible(Maker make) {
  if (!OneDnnGemm(Products::kWherePossible).has_primitives()) return {};
  return {make};
}

INSTANTIATE_TEST_SUITE_P(CpuOneDnn, BackendConformanceTest,
                         ::testing::ValuesIn(OnEachInstructionSet<BackendMaker>([] {
                           return std::make_unique<CpuBackend>(std::make_unique<OneDnnGemm>());
                         })));
INSTANTIATE_TEST_SUITE_P(CpuOneDnnPrimitives, BackendConformanceTest,
                         ::testing::ValuesIn(WherePossible<BackendMaker>([] {
                           return MakeBackend(Products::kWherePossible, 1);
                         })));

INSTANTIATE_TEST_SUITE_P(CpuOneDnn, ThreadCountConformanceTest,
                         ::testing::Values(ThreadedBackendMaker([](int threads) {
                           return MakeBackend(Products::kWhereNative, threads);
                         })));
INSTANTIATE_TEST_SUITE_P(CpuOneDnnPrimitives, ThreadCountConformanceTest,
                         ::testing::ValuesIn(WherePossible<ThreadedBackendMaker>([](int threads) {
                           return MakeBackend(Products::kWherePossible, threads);
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
