// Conformance of a backend's updates with an encoded momentum ([Q1]) and encoded second moments
// ([Q2]): rules compute in fp32 and round once, after the step. Part of the suite of
// backend_conformance.h; used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_ENCODED_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_ENCODED_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <variant>
#include <vector>

#include "kernels/state_codec.h"
#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/float64_element_wise.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

inline RuleConfig WithMomentumDType(RuleConfig rule, StateDType dtype) {
  std::visit([dtype](auto& config) { config.momentum_dtype = dtype; }, rule);
  return rule;
}

// The expected values follow the definition ([Q1]): decode the whole slot, update in fp32, encode
// it. The shape has several chunks and an incomplete last group.
TEST_P(BackendConformanceTest, EncodedMomentumIsDecodedUpdatedInFloat32AndRounded) {
  const std::vector<uint64_t> shape = {3, 4099};
  const size_t n = 3 * 4099;
  for (const RuleConfig& rule : Rules()) {
    for (const StateDType dtype : {StateDType::kBFloat16, StateDType::kInt8}) {
      Parameter encoded(WithMomentumDType(rule, dtype), shape, reference::GaussianVector(n, 31));
      Parameter plain(WithMomentumDType(rule, StateDType::kFloat32), shape, encoded.weight);
      if (encoded.slots.empty()) continue;
      for (int t = 1; t <= 3; ++t) {
        DecodeState(dtype, encoded.StateBytesOf(0), 0, absl::MakeSpan(plain.state[0]));
        const std::vector<float> grad = reference::GaussianVector(n, 31 + t);
        encoded.Update(*backend_, grad, {1e-2, 1.0, t});
        plain.Update(*backend_, grad, {1e-2, 1.0, t});
        ASSERT_TRUE(SameBits(encoded.weight, plain.weight)) << rule.index() << " step " << t;
        std::vector<std::byte> expected(encoded.slots[0].num_bytes);
        EncodeState(dtype, plain.state[0], 0, absl::MakeSpan(expected));
        ASSERT_EQ(memcmp(encoded.StateBytesOf(0).data(), expected.data(), expected.size()), 0);
        for (size_t k = 1; k < encoded.state.size(); ++k) {
          ASSERT_TRUE(SameBits(encoded.state[k], plain.state[k]));
        }
      }
    }
  }
}

// [Q2]: decode, update in fp32, encode, with the draws of the update.
TEST_P(BackendConformanceTest, SecondMomentsAreDecodedUpdatedInFloat32AndRounded) {
  const size_t n = 3 * 4099;
  AdamWConfig config;
  config.amsgrad = true;
  Parameter plain(config, {n}, reference::GaussianVector(n, 51));
  config.exp_avg_sq_dtype = StateDType::kSqrtUInt8;
  Parameter encoded(config, {n}, plain.weight);
  for (int t = 1; t <= 3; ++t) {
    for (int k : {1, 2}) {
      DecodeState(StateDType::kSqrtUInt8, encoded.StateBytesOf(k), 0,
                  absl::MakeSpan(plain.state[k]));
    }
    const std::vector<float> grad = reference::GaussianVector(n, 51 + t);
    const UpdateScalars scalars = {1e-2, 1.0, t, 7};
    encoded.Update(*backend_, grad, scalars);
    plain.Update(*backend_, grad, scalars);
    ASSERT_TRUE(SameBits(encoded.weight, plain.weight)) << "step " << t;
    for (int k : {1, 2}) {
      std::vector<std::byte> expected(encoded.slots[k].num_bytes);
      EncodeState(StateDType::kSqrtUInt8, plain.state[k], 0, absl::MakeSpan(expected),
                  RootSeedOf(7, t));
      ASSERT_EQ(memcmp(encoded.StateBytesOf(k).data(), expected.data(), expected.size()), 0);
    }
  }
}

// Small gradients after large ones: roots shrink by less than half a code a step.
TEST_P(BackendConformanceTest, EncodedSecondMomentsForgetAsTheReferenceDoes) {
  constexpr size_t kElements = 3200;
  AdamWConfig config;
  config.beta2 = 0.999;
  config.exp_avg_sq_dtype = StateDType::kSqrtUInt8;
  Parameter parameter(config, {kElements}, std::vector<float>(kElements));
  std::vector<double> expected(kElements);
  reference::Adam adam{1e-2, 0.9, 0.999};
  for (int t = 1; t <= 400; ++t) {
    std::vector<float> grad = reference::GaussianVector(kElements, 60 + t);
    for (float& g : grad) g *= t <= 50 ? 1.0f : 0.01f;
    parameter.Update(*backend_, grad, {1e-2, 1.0, t, 3});
    adam.Step(reference::Widened(grad), expected);
  }
  std::vector<float> roots(kElements);
  DecodeState(StateDType::kSqrtUInt8, parameter.StateBytesOf(1), 0, absl::MakeSpan(roots));
  double sum = 0;
  double expected_sum = 0;
  for (size_t i = 0; i < kElements; ++i) {
    sum += std::sqrt(roots[i]);
    expected_sum += std::sqrt(adam.v[i]);
  }
  EXPECT_NEAR(sum / expected_sum, 1, 2e-3);
  EXPECT_LE(reference::RelativeError(parameter.weight, expected), 2e-2);
}

TEST_P(BackendConformanceTest, AdamWithEncodedMomentumStaysNearTheReference) {
  for (const StateDType dtype : {StateDType::kBFloat16, StateDType::kInt8}) {
    Parameter parameter(WithMomentumDType(AdamWConfig{}, dtype), {320}, std::vector<float>(320));
    std::vector<double> expected(320);
    reference::Adam adam{1e-2, 0.9, 0.95};
    for (int t = 1; t <= 20; ++t) {
      const std::vector<float> grad = reference::GaussianVector(320, 40 + t);
      parameter.Update(*backend_, grad, {1e-2, 1.0, t});
      adam.Step(reference::Widened(grad), expected);
    }
    EXPECT_LE(reference::RelativeError(parameter.weight, expected), 2e-2);
    EXPECT_GT(reference::RelativeError(parameter.weight, expected), 1e-5);
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_ENCODED_H_
