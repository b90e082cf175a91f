// Conformance of a backend's element-wise rules in all their modes, against the float64 reference
// over 20 steps within the tolerances of [N9]. Part of the suite of backend_conformance.h; used by
// tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_ELEMENT_WISE_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_ELEMENT_WISE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/float64_element_wise.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

// A decay mode of [W1], named as the backend and as the reference name it. The amount of decay
// changes a weight by about 1e-3 in a step at a learning rate of 1e-2.
struct DecayCase {
  DecayMode mode;
  reference::WeightDecay expected;
};

inline const DecayCase kDecayCases[] = {
    {DecayMode::kDecoupled, {}},
    {DecayMode::kDecoupled, {reference::Decay::kDecoupled, 0.1}},
    {DecayMode::kIndependent, {reference::Decay::kIndependent, 1e-3}},
    {DecayMode::kL2, {reference::Decay::kL2, 0.1}},
    {DecayMode::kPalm, {reference::Decay::kPalm, 10.0}}};

// Updates `parameter` and `expected` by 20 steps with the same gradients.
template <typename Reference>
void RunTrajectory(Backend& backend, Parameter& parameter, Reference& rule,
                   std::vector<double>& expected) {
  const size_t n = parameter.weight.size();
  for (int t = 1; t <= 20; ++t) {
    const std::vector<float> grad = reference::GaussianVector(n, 300 + t);
    parameter.Update(backend, grad, {rule.lr, 1.0, t});
    rule.Step(reference::Widened(grad), expected);
  }
}

TEST_P(BackendConformanceTest, AdamFollowsTheReferenceInEveryMode) {
  for (const DecayCase& decay : kDecayCases) {
    for (int modes = 0; modes < 8; ++modes) {
      AdamWConfig config;
      // This eps is large enough to be visible next to the root.
      config.eps = 1e-2;
      config.eps_mode = modes & 1 ? AdamEpsMode::kUncorrected : AdamEpsMode::kOutside;
      config.amsgrad = modes & 2;
      config.bias_correction = modes & 4;
      config.decay_mode = decay.mode;
      config.weight_decay = decay.expected.amount;
      reference::Adam adam{1e-2, 0.9, 0.95, 1e-2, !(modes & 1), bool(modes & 2), bool(modes & 4)};
      adam.decay = decay.expected;
      Parameter parameter(config, {11, 19}, reference::GaussianVector(209, 21));
      std::vector<double> expected = reference::Widened(parameter.weight);
      RunTrajectory(*backend_, parameter, adam, expected);
      EXPECT_LE(reference::RelativeError(parameter.weight, expected), 1e-6) << modes;
      EXPECT_LE(reference::RelativeError(parameter.state[0], adam.m), 1e-6) << modes;
      EXPECT_LE(reference::RelativeError(parameter.state[1], adam.v), 1e-6) << modes;
      ASSERT_EQ(parameter.state.size(), config.amsgrad ? 3u : 2u);
      if (!config.amsgrad) continue;
      EXPECT_LE(reference::RelativeError(parameter.state[2], adam.largest_v), 1e-6) << modes;
    }
  }
}

TEST_P(BackendConformanceTest, SgdFollowsTheReferenceInEveryMode) {
  struct Mode {
    double momentum, dampening;
    bool nesterov;
  };
  for (const DecayCase& decay : kDecayCases) {
    for (const Mode& mode : {Mode{0, 0, false}, Mode{0, 0.5, false}, Mode{0.9, 0, false},
                             Mode{0.9, 0.3, false}, Mode{0.9, 1, false}, Mode{0.9, 0, true}}) {
      SgdConfig config{mode.momentum, mode.dampening, mode.nesterov};
      config.decay_mode = decay.mode;
      config.weight_decay = decay.expected.amount;
      reference::Sgd sgd{1e-2, mode.momentum, mode.dampening, mode.nesterov, decay.expected};
      Parameter parameter(config, {209}, reference::GaussianVector(209, 22));
      std::vector<double> expected = reference::Widened(parameter.weight);
      RunTrajectory(*backend_, parameter, sgd, expected);
      EXPECT_LE(reference::RelativeError(parameter.weight, expected), 1e-6) << mode.momentum;
      ASSERT_EQ(parameter.state.size(), mode.momentum > 0 ? 1u : 0u);
      if (mode.momentum == 0) continue;
      EXPECT_LE(reference::RelativeError(parameter.state[0], sgd.buffer), 1e-6) << mode.momentum;
    }
  }
}

// SGD copies its first gradient undampened into the buffer ([G1]), bit for bit.
TEST_P(BackendConformanceTest, SgdsFirstGradientIsItsBuffer) {
  const std::vector<float> grad = reference::GaussianVector(50, 23);
  Parameter parameter(SgdConfig{0.5, 0.75}, {50}, std::vector<float>(50));
  parameter.Update(*backend_, grad, {1.0, 1.0, 1});
  EXPECT_TRUE(SameBits(parameter.state[0], grad));
  parameter.Update(*backend_, grad, {1.0, 1.0, 2});
  for (size_t i = 0; i < 50; ++i) ASSERT_EQ(parameter.state[0][i], 0.75f * grad[i]);
}

// The signs equal those of the reference except near ties ([N9]). The rate and the weights are
// chosen so that no sum is rounded.
TEST_P(BackendConformanceTest, LionTakesTheSignsOfTheReference) {
  Parameter parameter(LionConfig{}, {1000}, std::vector<float>(1000, 0.5f));
  std::vector<double> expected = reference::Widened(parameter.weight);
  reference::Lion lion{0x1p-7};
  RunTrajectory(*backend_, parameter, lion, expected);
  int near_ties = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (lion.closest_to_tie[i] < 1e-6) {
      ++near_ties;
    } else {
      ASSERT_EQ(parameter.weight[i], expected[i]) << i;
    }
  }
  EXPECT_LE(near_ties, 10);
  EXPECT_LE(reference::RelativeError(parameter.state[0], lion.m), 1e-6);
}

TEST_P(BackendConformanceTest, LionFollowsTheReferenceUnderEveryDecay) {
  for (const DecayCase& decay : kDecayCases) {
    LionConfig config{0.9, 0.99, decay.expected.amount, decay.mode};
    reference::Lion lion{1e-2, 0.9, 0.99, decay.expected};
    Parameter parameter(config, {209}, reference::GaussianVector(209, 24));
    std::vector<double> expected = reference::Widened(parameter.weight);
    RunTrajectory(*backend_, parameter, lion, expected);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (lion.closest_to_tie[i] < 1e-6) expected[i] = parameter.weight[i];
    }
    EXPECT_LE(reference::RelativeError(parameter.weight, expected), 1e-6);
    EXPECT_LE(reference::RelativeError(parameter.state[0], lion.m), 1e-6);
  }
}

// Lion does not move a weight without a gradient, because 0 has no sign ([G2]).
TEST_P(BackendConformanceTest, LionLeavesAParameterWithoutGradientsWhereItIs) {
  Parameter parameter(LionConfig{}, {2}, {1.0f, 1.0f});
  parameter.Update(*backend_, {0.0f, 1e-30f}, {0.25, 1.0, 1});
  EXPECT_EQ(parameter.weight[0], 1.0f);
  EXPECT_EQ(parameter.weight[1], 0.75f);
}

// Edge 40: the first step divides by |g| + eps or by |g| + eps / sqrt(1 - b2), by the mode of eps.
TEST_P(BackendConformanceTest, EpsModesGiveDifferentFirstSteps) {
  AdamWConfig config;
  config.eps = 0.5;
  Parameter outside(config, {1}, {0.0f});
  outside.Update(*backend_, {1.0f}, {1.0, 1.0, 1});
  EXPECT_NEAR(outside.weight[0], -1 / 1.5, 1e-6);
  config.eps_mode = AdamEpsMode::kUncorrected;
  Parameter uncorrected(config, {1}, {0.0f});
  uncorrected.Update(*backend_, {1.0f}, {1.0, 1.0, 1});
  EXPECT_NEAR(uncorrected.weight[0], -1 / (1 + 0.5 / std::sqrt(0.05)), 1e-6);
}

// Edge 45 for every mode: each decay removes its own share, and a decay of 0 keeps the weight's
// bits.
TEST_P(BackendConformanceTest, EveryDecayTakesItsShareWhenTheUpdateIsZero) {
  const std::pair<DecayMode, float> kept[] = {{DecayMode::kDecoupled, 0.875f},
                                              {DecayMode::kIndependent, 0.5f},
                                              {DecayMode::kPalm, 1 - 0.5f / 16}};
  const std::vector<float> zero(64, 0.0f);
  std::vector<float> start = reference::GaussianVector(64, 25);
  start[0] = -0.0f;
  for (const RuleConfig& rule : Rules()) {
    for (const auto& [mode, share] : kept) {
      RuleConfig decayed = rule;
      const auto set = [&, mode = mode](auto& config, double amount) {
        config.decay_mode = mode;
        config.weight_decay = amount;
      };
      // Muon's decay modes have a suite of their own.
      if (std::holds_alternative<MuonConfig>(rule)) continue;
      std::visit([&](auto& config) { set(config, 0.5); }, decayed);
      Parameter with(decayed, {64}, start);
      with.Update(*backend_, zero, {0.25, 1.0, 1});
      for (size_t i = 0; i < 64; ++i) ASSERT_EQ(with.weight[i], share * start[i]);
      std::visit([&](auto& config) { set(config, 0); }, decayed);
      Parameter without(decayed, {64}, start);
      without.Update(*backend_, zero, {0.25, 1.0, 1});
      EXPECT_TRUE(SameBits(without.weight, start));
    }
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_ELEMENT_WISE_H_
