#include "kernels/cuda/products/product_tuning.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/test_device.h"

namespace kaon::kernels::cuda {
namespace {

constexpr SymmetricBatch kShape = {NsDType::kBFloat16, 256, 8, 1};

struct Forms {
  Forms() : symmetric(device.device(), device.products()) {}

  FormsUnderTest under_test() { return {device.device(), symmetric, device.on()}; }

  TestDevice device;
  SymmetricProducts symmetric;
};

// Tunes one shape with a clock whose intervals are each `factor` times the one before.
absl::Status TuneBy(double factor, const SymmetricBatch& shape, ProductChoice& choice) {
  Forms forms;
  absl::Duration interval = absl::Seconds(1000);
  absl::Time time = absl::UnixEpoch();
  const auto now = [&] {
    interval *= factor;
    return time += interval;
  };
  return Tune(forms.under_test(), {now, 1, 1}, {shape}, choice);
}

TEST(ProductTuningTest, EveryFormPassesItsCrossCheck) {
  Forms forms;
  for (const NsDType dtype : {NsDType::kBFloat16, NsDType::kFloat16}) {
    SymmetricBatch shape = kShape;
    shape.dtype = dtype;
    const OwnedMemory memory = forms.device.Memory(CrossCheckBytes(shape));
    for (const SymmetricForm form : kSymmetricForms) {
      const auto passes = PassesCrossCheck(forms.under_test(), form, shape, memory.data());
      ASSERT_TRUE(passes.ok()) << passes.status();
      EXPECT_TRUE(*passes) << NameOf(form);
    }
  }
}

TEST(ProductTuningTest, AFormThatIsFasterIsChosen) {
  ProductChoice choice;
  ASSERT_TRUE(TuneBy(0.9, kShape, choice).ok());
  const ChosenForm chosen = *choice.Find(kShape);
  EXPECT_EQ(chosen.form, SymmetricForm::kWgmma);
  EXPECT_LT(chosen.microseconds[2], chosen.microseconds[1]);
  EXPECT_LT(chosen.microseconds[1], chosen.microseconds[0]);
}

TEST(ProductTuningTest, DenseStaysIfNothingIsFaster) {
  for (const double factor : {1.0, 1.1}) {
    ProductChoice choice;
    ASSERT_TRUE(TuneBy(factor, kShape, choice).ok());
    EXPECT_EQ(choice.Find(kShape)->form, SymmetricForm::kDense);
    EXPECT_GT(choice.Find(kShape)->microseconds[1], 0);
  }
}

TEST(ProductTuningTest, MatricesMustFitIntoTheDevice) {
  ProductChoice choice;
  const SymmetricBatch large = {NsDType::kBFloat16, 1 << 17, 1 << 17, 1};
  EXPECT_EQ(TuneBy(1, large, choice).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace kaon::kernels::cuda
