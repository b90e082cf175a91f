#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/gemm/amx_gemm.h"
#include "kernels/gemm/amx_tiles.h"
#include "kernels/gemm/reference_gemm.h"
#include "kernels/gemm/tiled_gemm.h"
#include "tests/conformance/backend/backend_conformance.h"
#include "tests/conformance/backend/thread_count_conformance.h"
#include "tests/conformance/numerics_table.h"
#include "tests/kernels/instruction_sets.h"

namespace kaon::kernels {
namespace {

std::unique_ptr<Backend> MakeAmxBackendOf(int threads) {
  return std::make_unique<CpuBackend>(
      [](ThreadPool& pool) {
        return std::make_unique<AmxGemm>(
            std::make_unique<TiledGemm>(std::make_unique<ReferenceGemm>(), pool), pool);
      },
      threads);
}

std::unique_ptr<Backend> MakeAmxBackend() { return MakeAmxBackendOf(2); }

std::vector<BackendMaker> BackendsOfThisMachine() {
  if (!HasAmx()) return {};
  return OnEachInstructionSet<BackendMaker>(&MakeAmxBackend);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendConformanceTest);
INSTANTIATE_TEST_SUITE_P(CpuAmx, BackendConformanceTest,
                         ::testing::ValuesIn(BackendsOfThisMachine()));

std::vector<ThreadedBackendMaker> ThreadedBackendsOfThisMachine() {
  if (!HasAmx()) return {};
  // Other sets have no part in the tiles, and tiled_gemm_test divides their products among threads.
  return {[](int threads) {
    ChosenInstructionSet() = WidestInstructionSet();
    return MakeAmxBackendOf(threads);
  }};
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ThreadCountConformanceTest);
INSTANTIATE_TEST_SUITE_P(CpuAmx, ThreadCountConformanceTest,
                         ::testing::ValuesIn(ThreadedBackendsOfThisMachine()));

class CpuBackendAmxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasAmx()) {
      GTEST_SKIP() << "this machine has no AMX tiles; nor has the conformance suite run on them";
    }
  }
};

MuonConfig BFloat16Muon() {
  MuonConfig config;
  config.newton_schulz.dtype = NsDType::kBFloat16;
  return config;
}

std::vector<float> Stepped(Backend& backend, const MuonConfig& config, std::vector<uint64_t> shape,
                           MatrixLayout layout = {}) {
  uint64_t n = 1;
  for (const uint64_t extent : shape) n *= extent;
  MuonConfig with_layout = config;
  with_layout.layout = layout;
  Parameter parameter(with_layout, shape, std::vector<float>(n));
  parameter.Update(backend, reference::GaussianVector(n, 1), {1.0, 1.0, 1});
  return parameter.weight;
}

TEST_F(CpuBackendAmxTest, NamesItsProducts) { EXPECT_EQ(MakeAmxBackend()->name(), "cpu/amx"); }

// [N9], and every rule id the rows name.
TEST_F(CpuBackendAmxTest, EveryRowOfTheNumericsTableIsWithinItsTolerance) {
  const std::unique_ptr<Backend> amx = MakeAmxBackend();
  for (const conformance::NumericsCase& c : conformance::NumericsCases()) {
    const conformance::NumericsResult result = conformance::Run(c, *amx);
    EXPECT_TRUE(result.passed) << c.rule << ": " << c.name << ": error " << result.error
                               << ", tolerance " << c.tolerance;
  }
}

TEST_F(CpuBackendAmxTest, MuonAgreesWithTheReferenceProducts) {
  CpuBackend reference(std::make_unique<ReferenceGemm>());
  const std::unique_ptr<Backend> amx = MakeAmxBackend();
  // bf16: sums that fall the other way at a tie are enlarged by later steps.
  EXPECT_LE(
      reference::RelativeError(Stepped(*amx, BFloat16Muon(), {65, 130}),
                               reference::Widened(Stepped(reference, BFloat16Muon(), {65, 130}))),
      1e-2);
}

}  // namespace
}  // namespace kaon::kernels
