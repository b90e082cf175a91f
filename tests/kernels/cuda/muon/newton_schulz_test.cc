// Newton-Schulz of a device, on the host, against float64 [N9].
#include "kernels/cuda/muon/newton_schulz.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/kernels/cuda/muon/orthogonalizer.h"
#include "tests/kernels/orthogonalize/newton_schulz_cases.h"

namespace kaon::kernels::cuda {
namespace {

struct Shape {
  int rows;
  int cols;
};

std::vector<NewtonSchulzTestCase> DeviceCases() {
  std::vector<NewtonSchulzTestCase> cases;
  for (const char* const set : {"jordan", "you", "polar_express", "cubic5"}) {
    for (NewtonSchulzTestCase& c : EveryNewtonSchulzCase()) {
      if (c.set == set) cases.push_back(std::move(c));
    }
  }
  return cases;
}

double Tolerance(const NewtonSchulzTestCase& c, double decades) {
  const bool longer = c.config.steps > 5;
  switch (c.config.dtype) {
    case NsDType::kFloat32:
      if (c.config.form == NsForm::kGram) return 1e-3;
      if (decades == 0) return 1e-5;
      return longer ? 2e-4 : 5e-5;
    case NsDType::kBFloat16:
      if (decades == 0) return 4e-2;
      return longer ? 5e-1 : 2e-1;
    case NsDType::kFloat16:
      break;
  }
  if (decades == 0) return 3e-3;
  return longer ? 8e-2 : 3e-2;
}

// Figures of [N9] for the reference and, tighter, for its version that rounds where we store.
TEST(DeviceNewtonSchulzTest, AgreesWithFloat64WithinItsTolerances) {
  Orthogonalizer device;
  for (const NewtonSchulzTestCase& c : DeviceCases()) {
    for (const Shape shape : {Shape{16, 16}, Shape{31, 77}, Shape{48, 80}, Shape{8, 200}}) {
      for (const double decades : {0.0, 4.0}) {
        const std::vector<float> in =
            reference::MatrixWithSpectrum(shape.rows, shape.cols, decades, 3);
        const std::vector<float> out =
            device.Run(c.config, shape.rows, shape.cols, {NormalisedMatrix(c, in)})[0];
        const reference::Matrix g = reference::AsMatrix(in, shape.rows, shape.cols);
        const reference::Matrix exact = reference::Orthogonalized(c.exact, g);
        const reference::Matrix rounded = reference::Orthogonalized(c.emulator, g);
        const double of_rounding = 1.25 * (rounded - exact).norm() / exact.norm();
        const std::string name = absl::StrCat(c.Name(), " ", shape.rows, "x", shape.cols);
        EXPECT_LE(reference::RelativeError(out, exact),
                  std::max(Tolerance(c, decades), of_rounding))
            << name;
      }
    }
  }
}

// The Gram matrix sums squares of 30000 equal elements, each step anew.
TEST(DeviceNewtonSchulzTest, LongRowsOfOneSignKeepTheirTolerance) {
  constexpr int kRows = 2;
  constexpr int kCols = 30000;
  const NewtonSchulzTestCase c =
      TestCase(NewtonSchulzCoefficientSets()[0], 5, NsDType::kFloat32, NsForm::kStandard);
  const std::vector<float> in(kRows * kCols, 1.25f);
  Orthogonalizer device;
  const std::vector<float> out = device.Run(c.config, kRows, kCols, {NormalisedMatrix(c, in)})[0];
  const reference::Matrix exact =
      reference::Orthogonalized(c.exact, reference::AsMatrix(in, kRows, kCols));
  EXPECT_LE(reference::RelativeError(out, exact), 1e-5);
}

double MedianErrorAgainstEmulator(Orthogonalizer& device, const NewtonSchulzTestCase& c,
                                  double decades) {
  std::vector<double> errors;
  for (const Shape shape : {Shape{16, 16}, Shape{31, 77}, Shape{48, 80}}) {
    for (const uint32_t seed : {4u, 5u, 6u}) {
      const std::vector<float> in =
          reference::MatrixWithSpectrum(shape.rows, shape.cols, decades, seed);
      const std::vector<float> out =
          device.Run(c.config, shape.rows, shape.cols, {NormalisedMatrix(c, in)})[0];
      errors.push_back(reference::RelativeError(
          out,
          reference::Orthogonalized(c.emulator, reference::AsMatrix(in, shape.rows, shape.cols))));
    }
  }
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() / 2];
}

TEST(DeviceNewtonSchulzTest, RoundsWhereItStores) {
  Orthogonalizer device;
  for (const NewtonSchulzTestCase& c : DeviceCases()) {
    if (c.config.dtype == NsDType::kFloat32) continue;
    EXPECT_LE(MedianErrorAgainstEmulator(device, c, 0), 1e-2) << c.Name();
    EXPECT_LE(MedianErrorAgainstEmulator(device, c, 4), 5e-2) << c.Name();
  }
}

NewtonSchulzTestCase CaseOf(NsDType dtype, NsForm form, int steps = 5) {
  return TestCase(NewtonSchulzCoefficientSets()[0], steps, dtype, form);
}

std::vector<NewtonSchulzTestCase> FourCases() {
  std::vector<NewtonSchulzTestCase> cases;
  for (const NsDType dtype : {NsDType::kBFloat16, NsDType::kFloat16}) {
    for (const NsForm form : {NsForm::kStandard, NsForm::kGram}) {
      cases.push_back(CaseOf(dtype, form));
    }
  }
  return cases;
}

Batch SomeMatrices(const NewtonSchulzTestCase& c, int64_t count, int r, int cols, uint32_t seed) {
  Batch batch;
  for (int64_t i = 0; i < count; ++i) {
    batch.push_back(NormalisedMatrix(c, reference::GaussianVector(r * cols, seed + i)));
  }
  return batch;
}

TEST(DeviceNewtonSchulzTest, ABatchHasTheBitsOfEachMatrixAlone) {
  Orthogonalizer device;
  for (const NewtonSchulzTestCase& c : FourCases()) {
    const Batch in = SomeMatrices(c, 5, 30, 75, 20);
    const Batch together = device.Run(c.config, 30, 75, in);
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_EQ(together[i], device.Run(c.config, 30, 75, {in[i]})[0]) << c.Name() << " " << i;
    }
  }
}

TEST(DeviceNewtonSchulzTest, TheGraphHasTheBitsOfTheWorkItRecorded) {
  Orthogonalizer device;
  for (const NewtonSchulzTestCase& c : FourCases()) {
    const WideBatch shape = {20, 50, 3};
    const OwnedMemory memory =
        device.device().Memory(NewtonSchulzPlan::MemoryBytes(c.config, shape));
    const auto plan = device.Plan(c.config, shape, memory.data());
    // Two inputs, so that what the graph reads is not what it was captured with.
    for (const uint32_t seed : {1u, 100u}) {
      const Batch in = SomeMatrices(c, shape.batch, 20, 50, seed);
      device.Store(c.config, shape, in, *plan);
      plan->Run();
      const Batch replayed = device.Result(c.config, shape, *plan);
      device.Store(c.config, shape, in, *plan);
      plan->RunDirectly();
      EXPECT_EQ(device.Result(c.config, shape, *plan), replayed) << c.Name();
    }
  }
}

TEST(DeviceNewtonSchulzTest, OrderOfThreadsDoesNotMatter) {
  const NewtonSchulzTestCase c = CaseOf(NsDType::kBFloat16, NsForm::kGram);
  const Batch in = SomeMatrices(c, 2, 17, 40, 9);
  const Batch first = Orthogonalizer(1).Run(c.config, 17, 40, in);
  for (const uint64_t seed : {2, 3}) {
    EXPECT_EQ(Orthogonalizer(seed).Run(c.config, 17, 40, in), first) << seed;
  }
}

TEST(DeviceNewtonSchulzTest, PlansOfOneStreamShareTheirMemory) {
  Orthogonalizer device;
  const NewtonSchulzTestCase standard = CaseOf(NsDType::kBFloat16, NsForm::kStandard);
  const NewtonSchulzTestCase gram = CaseOf(NsDType::kFloat16, NsForm::kGram);
  const Batch in = SomeMatrices(standard, 2, 20, 50, 1);
  const WideBatch shape = {20, 50, 2};
  const OwnedMemory memory =
      device.device().Memory(std::max(NewtonSchulzPlan::MemoryBytes(standard.config, shape),
                                      NewtonSchulzPlan::MemoryBytes(gram.config, shape)));
  const auto first = device.Plan(standard.config, shape, memory.data());
  const auto second = device.Plan(gram.config, shape, memory.data());
  for (const auto& [plan, c] :
       {std::pair(first.get(), &standard), {second.get(), &gram}, {first.get(), &standard}}) {
    device.Store(c->config, shape, in, *plan);
    plan->Run();
    EXPECT_EQ(device.Result(c->config, shape, *plan), device.Run(c->config, 20, 50, in));
  }
}

// Our loops sum an element in the same order in every form, and the polynomials of the standard
// form are exactly symmetric.
TEST(DeviceNewtonSchulzTest, BlocksGiveTheBitsOfTheDenseForm) {
  const NewtonSchulzTestCase c = CaseOf(NsDType::kBFloat16, NsForm::kStandard, 1);
  const Batch in = SomeMatrices(c, 2, 260, 264, 7);
  Orthogonalizer dense;
  Orthogonalizer blocks;
  const SymmetricBatch kinds[] = {KindOf({NsDType::kBFloat16, 260, 264, 1}),
                                  KindOf({NsDType::kBFloat16, 260, 260, 1})};
  for (const SymmetricBatch& kind : kinds) blocks.choice().Set(kind, {SymmetricForm::kBlocks, {}});
  EXPECT_EQ(blocks.Run(c.config, 260, 264, in), dense.Run(c.config, 260, 264, in));
  for (const SymmetricBatch& kind : kinds) {
    EXPECT_EQ(blocks.choice().Find(kind)->form, SymmetricForm::kBlocks);
    EXPECT_EQ(dense.choice().Find(kind)->form, SymmetricForm::kDense);
  }
}

TEST(DeviceNewtonSchulzTest, OurKernelStaysWithinRounding) {
  const NewtonSchulzTestCase c = CaseOf(NsDType::kBFloat16, NsForm::kStandard, 1);
  const Batch in = SomeMatrices(c, 2, 40, 72, 7);
  Orthogonalizer dense;
  Orthogonalizer wgmma;
  for (const int64_t k : {40, 72}) {
    wgmma.choice().Set(KindOf({NsDType::kBFloat16, 40, k, 1}), {SymmetricForm::kWgmma, {}});
  }
  const Batch expected = dense.Run(c.config, 40, 72, in);
  const Batch out = wgmma.Run(c.config, 40, 72, in);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_LE(reference::RelativeError(out[i], reference::Widened(expected[i])), 1e-2);
  }
  EXPECT_EQ(wgmma.choice().Find(KindOf({NsDType::kBFloat16, 40, 72, 1}))->form,
            SymmetricForm::kWgmma);
}

}  // namespace
}  // namespace kaon::kernels::cuda
