// Conformance of a backend's updates under every rule, and of AdamW against the float64 reference
// within the tolerances of [N9]. Part of the suite of backend_conformance.h; used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_UPDATE_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_UPDATE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <variant>
#include <vector>

#include "kernels/float_bits.h"
#include "kernels/reduce/digest.h"
#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/float64_element_wise.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

TEST_P(BackendConformanceTest, AdamWFollowsTheReferenceOverManySteps) {
  AdamWConfig config;
  config.weight_decay = 0.1;
  Parameter parameter(config, {13, 17}, reference::GaussianVector(221, 8));
  std::vector<double> expected = reference::Widened(parameter.weight);
  reference::Adam adamw{1e-2, config.beta1, config.beta2, config.eps};
  adamw.decay.amount = config.weight_decay;
  for (int t = 1; t <= 30; ++t) {
    const std::vector<float> grad = reference::GaussianVector(221, 100 + t);
    EXPECT_EQ(parameter.Update(*backend_, grad, {1e-2, 1.0, t}).newton_schulz_calls, 0);
    adamw.Step(reference::Widened(grad), expected);
  }
  EXPECT_LE(reference::RelativeError(parameter.weight, expected), 1e-6);
  EXPECT_LE(reference::RelativeError(parameter.state[0], adamw.m), 1e-6);
  EXPECT_LE(reference::RelativeError(parameter.state[1], adamw.v), 1e-6);
}

TEST_P(BackendConformanceTest, UpdateInPlaceEqualsOutOfPlace) {
  for (const RuleConfig& rule : Rules()) {
    Parameter in_place(rule, {21, 10}, reference::GaussianVector(210, 11));
    Parameter out_of_place = in_place;
    const std::vector<float> before = out_of_place.weight;
    const std::vector<float> grad = reference::GaussianVector(210, 12);
    std::vector<float> new_weight(210);
    in_place.Update(*backend_, grad, {1e-2, 0.5, 1});
    out_of_place.UpdateInto(*backend_, grad, {1e-2, 0.5, 1}, new_weight);
    EXPECT_TRUE(SameBits(in_place.weight, new_weight));
    EXPECT_TRUE(SameBits(out_of_place.weight, before));
    EXPECT_TRUE(SameState(in_place, out_of_place));
  }
}

// An update that would make a weight that is not finite keeps all weights ([T10]).
TEST_P(BackendConformanceTest, AnUpdateThatIsNotFiniteKeepsTheWeights) {
  for (const RuleConfig& rule : Rules()) {
    // The size covers a whole chunk of the element-wise rules and part of another; only the last
    // element overflows.
    constexpr size_t kCount = 30 * 20;
    std::vector<float> start = reference::GaussianVector(kCount, 20);
    start.back() = -3.39e38f;
    Parameter parameter(rule, {30, 20}, start);
    Parameter stepped = parameter;
    std::vector<float> grad = reference::GaussianVector(kCount, 21);
    grad.back() = 2;
    std::vector<float> new_weight(kCount);
    const UpdateResult result = parameter.UpdateInto(*backend_, grad, {3e38, 1, 1}, new_weight);
    EXPECT_EQ(result.fault, UpdateFault::kNotFinite);
    EXPECT_TRUE(SameBits(new_weight, start));
    EXPECT_EQ(result.weights_digest, TensorDigest(0, kWeightSlot, start));
    EXPECT_EQ(result.largest_weight_bits, BitsOf(3.39e38f));
    // The state advances as in any other update.
    stepped.UpdateInto(*backend_, grad, {1e-3, 1, 1}, new_weight);
    EXPECT_TRUE(SameState(parameter, stepped));
  }
}

TEST_P(BackendConformanceTest, UpdatesTellTheLargestWeight) {
  for (const RuleConfig& rule : Rules()) {
    for (const size_t at : {size_t{0}, size_t{599}}) {
      std::vector<float> start = reference::GaussianVector(600, 22);
      start[at] = -1000;
      Parameter parameter(rule, {30, 20}, start);
      const UpdateResult result =
          parameter.Update(*backend_, reference::GaussianVector(600, 23), {1e-3, 1, 1});
      EXPECT_EQ(result.fault, UpdateFault::kNone);
      EXPECT_EQ(result.largest_weight_bits, BitsOf(std::abs(parameter.weight[at])));
    }
  }
}

TEST_P(BackendConformanceTest, ClipFactorMultipliesTheGradientBeforeTheMomentum) {
  for (const RuleConfig& rule : Rules()) {
    Parameter clipped(rule, {8, 8}, std::vector<float>(64, 1.0f));
    Parameter scaled = clipped;
    const std::vector<float> grad = reference::GaussianVector(64, 13);
    std::vector<float> quarter = grad;
    for (float& g : quarter) g *= 0.25f;
    clipped.Update(*backend_, grad, {1e-2, 0.25, 1});
    scaled.Update(*backend_, quarter, {1e-2, 1.0, 1});
    EXPECT_TRUE(SameBits(clipped.weight, scaled.weight));
    EXPECT_TRUE(SameState(clipped, scaled));
  }
}

// Edge 45: a zero update only decays the weight, and the decay uses the base rate.
TEST_P(BackendConformanceTest, ZeroUpdateDecaysOnlyByTheBaseRate) {
  for (const RuleConfig& rule : Rules()) {
    RuleConfig decayed = rule;
    const auto decay = [](auto& config) {
      config.weight_decay = 0.5;
      config.decay_mode = DecayMode::kDecoupled;
    };
    std::visit(decay, decayed);
    const std::vector<float> zero(64, 0.0f);
    std::vector<float> start = reference::GaussianVector(64, 16);
    start[0] = -0.0f;
    Parameter without(rule, {4, 16}, start);
    without.Update(*backend_, zero, {0.25, 1.0, 1});
    EXPECT_TRUE(SameBits(without.weight, start));
    Parameter with(decayed, {4, 16}, start);
    with.Update(*backend_, zero, {0.25, 1.0, 1});
    for (size_t i = 0; i < start.size(); ++i) ASSERT_EQ(with.weight[i], 0.875f * start[i]);
  }
}

// Edge 35: the master weight is fp32, whatever dtype is pulled ([M6]). Each of these rules steps by
// the learning rate when all gradients are 1.
TEST_P(BackendConformanceTest, MasterWeightAccumulatesBelowABFloat16Ulp) {
  for (const RuleConfig& rule :
       {RuleConfig(AdamWConfig{}), RuleConfig(SgdConfig{}), RuleConfig(LionConfig{})}) {
    Parameter parameter(rule, {4}, std::vector<float>(4, 1.0f));
    const std::vector<float> grad(4, 1.0f);
    parameter.Update(*backend_, grad, {1e-5, 1.0, 1});
    EXPECT_EQ(RoundTo(DType::kBFloat16, parameter.weight[0]), 1.0f);
    EXPECT_LT(parameter.weight[0], 1.0f);
    for (int t = 2; t <= 1000; ++t) parameter.Update(*backend_, grad, {1e-5, 1.0, t});
    EXPECT_NEAR(parameter.weight[0], 0.99, 1e-4);
    EXPECT_LT(RoundTo(DType::kBFloat16, parameter.weight[0]), 1.0f);
  }
}

// Edge 41: each parameter counts its steps as an int64.
TEST_P(BackendConformanceTest, AdamWCountsStepsFarBeyondSixteenBits) {
  Parameter parameter(AdamWConfig{}, {1}, {0.0f});
  parameter.state[0][0] = 1.0f;
  parameter.state[1][0] = 1.0f;
  parameter.Update(*backend_, {1.0f}, {1e-3, 1.0, int64_t{1} << 40});
  EXPECT_NEAR(parameter.weight[0], -1e-3, 1e-9);
}

TEST_P(BackendConformanceTest, SameArgumentsGiveSameBitsFromSeveralThreads) {
  for (const RuleConfig& rule : Rules()) {
    const std::vector<float> grad = reference::GaussianVector(37 * 61, 19);
    std::vector<Parameter> copies(4, Parameter(rule, {37, 61}, std::vector<float>(37 * 61)));
    copies[0].Update(*backend_, grad, {1e-2, 1.0, 1});
    std::vector<std::thread> threads;
    for (size_t i = 1; i < copies.size(); ++i) {
      threads.emplace_back([&, i] { copies[i].Update(*backend_, grad, {1e-2, 1.0, 1}); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 1; i < copies.size(); ++i) {
      EXPECT_TRUE(SameBits(copies[i].weight, copies[0].weight));
      EXPECT_TRUE(SameState(copies[i], copies[0]));
    }
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_UPDATE_H_
