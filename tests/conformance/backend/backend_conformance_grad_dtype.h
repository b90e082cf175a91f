// Conformance of a backend's updates with gradients in each dtype: the result is that of the
// gradient's fp32 values. Part of the suite of backend_conformance.h; used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_GRAD_DTYPE_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_GRAD_DTYPE_H_

#include <gtest/gtest.h>

#include <vector>

#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/float64_element_wise.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

inline std::vector<float> Rounded(DType dtype, std::vector<float> values) {
  for (float& x : values) x = RoundTo(dtype, x);
  return values;
}

TEST_P(BackendConformanceTest, AGradientOfAnyDTypeIsItsFloat32Values) {
  // The shape has several chunks and an odd rest.
  const std::vector<uint64_t> shape = {3, 4099};
  const size_t n = 3 * 4099;
  for (const RuleConfig& rule : Rules()) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      Parameter half(rule, shape, reference::GaussianVector(n, 61));
      Parameter wide = half;
      for (int t = 1; t <= 2; ++t) {
        std::vector<float> grad = reference::GaussianVector(n, 61 + t);
        // These values are zero or too small to be normal in either half precision.
        grad[5] = 1e-7f;
        grad[6] = -0.0f;
        const std::vector<std::byte> bytes = Encode(dtype, grad);
        const GradView view(dtype, absl::MakeConstSpan(bytes).subspan(1));
        const UpdateScalars scalars{1e-2, 0.5, t, 7};
        const UpdateResult of_half = half.Update(*backend_, view, scalars);
        const UpdateResult of_wide = wide.Update(*backend_, Rounded(dtype, grad), scalars);
        EXPECT_EQ(of_half.weights_digest, of_wide.weights_digest);
        EXPECT_EQ(of_half.slots_digest, of_wide.slots_digest);
      }
      EXPECT_TRUE(SameBits(half.weight, wide.weight)) << RuleName(rule);
      EXPECT_TRUE(SameState(half, wide)) << RuleName(rule);
    }
  }
}

// The rules follow the reference within the tolerances of [N9]. The reference gets the gradient
// after it was rounded to the dtype.
TEST_P(BackendConformanceTest, RulesFollowTheReferenceWithGradientsOfEveryDType) {
  constexpr size_t kSize = 209;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    Parameter adamw(AdamWConfig{}, {kSize}, reference::GaussianVector(kSize, 64));
    Parameter sgd(SgdConfig{0.9}, {kSize}, adamw.weight);
    Parameter lion(LionConfig{}, {kSize}, adamw.weight);
    reference::Adam adamw64{1e-2, 0.9, 0.95};
    reference::Sgd sgd64{1e-2, 0.9};
    reference::Lion lion64{1e-2};
    std::vector<double> of_adamw = reference::Widened(adamw.weight);
    std::vector<double> of_sgd = of_adamw;
    std::vector<double> of_lion = of_adamw;
    for (int t = 1; t <= 20; ++t) {
      const std::vector<float> grad = Rounded(dtype, reference::GaussianVector(kSize, 64 + t));
      std::vector<std::byte> bytes(kSize * SizeOf(dtype));
      FromFloat(dtype, grad, bytes.data());
      const GradView view(dtype, absl::MakeConstSpan(bytes));
      adamw.Update(*backend_, view, {1e-2, 1.0, t});
      sgd.Update(*backend_, view, {1e-2, 1.0, t});
      lion.Update(*backend_, view, {1e-2, 1.0, t});
      adamw64.Step(reference::Widened(grad), of_adamw);
      sgd64.Step(reference::Widened(grad), of_sgd);
      lion64.Step(reference::Widened(grad), of_lion);
    }
    for (size_t i = 0; i < kSize; ++i) {
      if (lion64.closest_to_tie[i] < 1e-6) of_lion[i] = lion.weight[i];
    }
    EXPECT_LE(reference::RelativeError(adamw.weight, of_adamw), 1e-6) << NameOf(dtype);
    EXPECT_LE(reference::RelativeError(sgd.weight, of_sgd), 1e-6) << NameOf(dtype);
    EXPECT_LE(reference::RelativeError(lion.weight, of_lion), 1e-6) << NameOf(dtype);
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_GRAD_DTYPE_H_
