#include <gtest/gtest.h>

#include <memory>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/gemm/reference_gemm.h"
#include "tests/kernels/cuda/backend_scenario.h"
#include "tests/kernels/cuda/seeded_bugs.h"

namespace kaon::kernels::cuda {
namespace {

// Returns true if the backend on the host has the CPU's bits under some seeds.
bool HasTheBitsOfTheCpu() {
  CpuBackend cpu(std::make_unique<ReferenceGemm>());
  const std::vector<uint64_t> expected = RunScenario(cpu);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    if (RunScenario(*NewBackendOnHost(seed, 3)) != expected) return false;
  }
  return true;
}

TEST(OrderBugsTest, EveryBuiltInBugIsFound) {
  EXPECT_FALSE(IsFound(SeededBug::kNone, HasTheBitsOfTheCpu));
  constexpr int kFirst = static_cast<int>(SeededBug::kSlotReusedBeforeItsEvent);
  constexpr int kLast = static_cast<int>(SeededBug::kResultsNotZeroed);
  for (int bug = kFirst; bug <= kLast; ++bug) {
    EXPECT_TRUE(IsFound(static_cast<SeededBug>(bug), HasTheBitsOfTheCpu)) << bug;
  }
}

}  // namespace
}  // namespace kaon::kernels::cuda
