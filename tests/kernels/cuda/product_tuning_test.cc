#include "kernels/cuda/product_tuning.h"

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

// A clock whose intervals are each `factor` times the one before.
class Clock {
 public:
  explicit Clock(double factor) : factor_(factor) {}
  absl::Time operator()() {
    interval_ *= factor_;
    return now_ += interval_;
  }

 private:
  const double factor_;
  absl::Duration interval_ = absl::Seconds(1000);
  absl::Time now_ = absl::UnixEpoch();
};

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
  Forms forms;
  ProductChoice choice;
  Clock clock(0.9);
  ASSERT_TRUE(Tune(forms.under_test(), {clock, 1, 1}, {kShape}, choice).ok());
  const ChosenForm chosen = *choice.Find(kShape);
  EXPECT_EQ(chosen.form, SymmetricForm::kWgmma);
  EXPECT_LT(chosen.microseconds[2], chosen.microseconds[1]);
  EXPECT_LT(chosen.microseconds[1], chosen.microseconds[0]);
}

TEST(ProductTuningTest, DenseStaysIfNothingIsFaster) {
  for (const double factor : {1.0, 1.1}) {
    Forms forms;
    ProductChoice choice;
    Clock clock(factor);
    ASSERT_TRUE(Tune(forms.under_test(), {clock, 1, 1}, {kShape}, choice).ok());
    EXPECT_EQ(choice.Find(kShape)->form, SymmetricForm::kDense);
    EXPECT_GT(choice.Find(kShape)->microseconds[1], 0);
  }
}

TEST(ProductTuningTest, MatricesMustFitIntoTheDevice) {
  Forms forms;
  ProductChoice choice;
  Clock clock(1);
  const SymmetricBatch large = {NsDType::kBFloat16, 1 << 17, 1 << 17, 1};
  EXPECT_EQ(Tune(forms.under_test(), {clock, 1, 1}, {large}, choice).code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace kaon::kernels::cuda
