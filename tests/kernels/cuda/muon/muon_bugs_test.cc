// Finds each bug that can be built into products, Newton-Schulz and Muon's batches. The comparison
// is with another form, a fresh runner, a matrix alone, or float64.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/products/product_tuning.h"
#include "kernels/cuda/seeded_bug.h"
#include "tests/kernels/cuda/mirrored.h"
#include "tests/kernels/cuda/muon/device_muon.h"
#include "tests/kernels/cuda/muon/orthogonalizer.h"
#include "tests/kernels/cuda/seeded_bugs.h"

namespace kaon::kernels::cuda {
namespace {

bool BlocksPassTheirCrossCheck() {
  TestDevice device;
  SymmetricProducts symmetric(device.device(), device.products());
  const SymmetricBatch shape = {NsDType::kBFloat16, 300, 24, 2};
  const OwnedMemory memory = device.Memory(CrossCheckBytes(shape));
  const auto passes = PassesCrossCheck({device.device(), symmetric, device.on()},
                                       SymmetricForm::kBlocks, shape, memory.data());
  return passes.ok() && *passes;
}

// Runs with the plans of one lane, each with other matrices and options than the one before.
bool StepsAreThoseOfAFreshRunner() {
  DeviceMuon device;
  const MuonConfig standard = ConfigOf(NsDType::kBFloat16);
  const MuonConfig gram = ConfigOf(NsDType::kBFloat16, NsForm::kGram);
  std::vector<Parameter> parameters;
  // The Gram form needs more memory, so the second run keeps the plans of the first.
  parameters.emplace_back(gram, std::vector<uint64_t>{12, 40}, 1);
  parameters.emplace_back(standard, std::vector<uint64_t>{12, 40}, 3);
  parameters.emplace_back(standard, std::vector<uint64_t>{50, 90}, 5);
  parameters.emplace_back(standard, std::vector<uint64_t>{12, 40}, 7);
  for (Parameter& p : parameters) {
    Parameter fresh = p;
    device.Step({&p});
    DeviceMuon().Step({&fresh});
    if (!AreEqual(p, fresh)) return false;
  }
  return true;
}

bool BatchesAreTheirMatricesAlone() {
  Orthogonalizer device;
  const NewtonSchulzTestCase c =
      TestCase(NewtonSchulzCoefficientSets()[0], 5, NsDType::kBFloat16, NsForm::kGram);
  Batch in;
  for (const uint32_t seed : {1, 2, 3}) {
    in.push_back(NormalisedMatrix(c, reference::GaussianVector(12 * 40, seed)));
  }
  const Batch together = device.Run(c.config, 12, 40, in);
  for (size_t i = 0; i < in.size(); ++i) {
    if (device.Run(c.config, 12, 40, {in[i]})[0] != together[i]) return false;
  }
  return true;
}

// Eight steps, of which only two may pass without a restart.
bool RestartsKeepSmallSingularValues() {
  Orthogonalizer device;
  for (const NewtonSchulzCoefficientSet& set : NewtonSchulzCoefficientSets()) {
    if (set.triples.size() != 8) continue;
    const NewtonSchulzTestCase c = TestCase(set, 8, NsDType::kBFloat16, NsForm::kGram);
    const std::vector<float> in = reference::MatrixWithSpectrum(31, 77, 4, 3);
    const std::vector<float> out = device.Run(c.config, 31, 77, {NormalisedMatrix(c, in)})[0];
    const reference::Matrix rounded =
        reference::Orthogonalized(c.emulator, reference::AsMatrix(in, 31, 77));
    if (!(reference::RelativeError(out, rounded) <= 1e-1)) return false;
  }
  return true;
}

bool EverythingIsRight() {
  return MirrorsLowerTriangles(70, 2) && BlocksPassTheirCrossCheck() &&
         BatchesAreTheirMatricesAlone() && RestartsKeepSmallSingularValues() &&
         StepsAreThoseOfAFreshRunner();
}

TEST(MuonBugsTest, NoneIsFoundWithoutOne) {
  EXPECT_FALSE(IsFound(SeededBug::kNone, EverythingIsRight));
}

TEST(MuonBugsTest, EachIsFound) {
  for (int bug = static_cast<int>(SeededBug::kStaleGraphMemory);
       bug <= static_cast<int>(SeededBug::kDiagonalOfFirstOnly); ++bug) {
    EXPECT_TRUE(IsFound(static_cast<SeededBug>(bug), EverythingIsRight)) << bug;
  }
}

}  // namespace
}  // namespace kaon::kernels::cuda
