// Conformance of a backend's Muon: shapes, scales, the privacy of the momentum, and weights against
// the float64 reference within the tolerances of [N9]. Part of the suite of backend_conformance.h;
// used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_MUON_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_MUON_H_

#include <gtest/gtest.h>

#include <variant>
#include <vector>

#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/float64_muon.h"
#include "tests/kernels/reference/float64_newton_schulz.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

// The weights stay within the tolerances of [N9] over several steps.
TEST_P(BackendConformanceTest, MuonFollowsTheReferenceOverManySteps) {
  for (const bool nesterov : {true, false}) {
    MuonConfig config;
    config.nesterov = nesterov;
    config.newton_schulz.coefficients = NsCoefficients::kPolarExpress;
    config.weight_decay = 0.1;
    Parameter parameter(config, {24, 40}, reference::GaussianVector(960, 9));
    std::vector<double> expected = reference::Widened(parameter.weight);
    reference::LayoutMuon muon;
    muon.lr = 1e-2;
    muon.nesterov = nesterov;
    muon.weight_decay = 0.1;
    muon.newton_schulz.triples = reference::TriplesOfSet("polar_express", 5);
    muon.layout.shape = {24, 40};
    for (int t = 1; t <= 10; ++t) {
      const std::vector<float> grad = reference::GaussianVector(960, 200 + t);
      EXPECT_EQ(parameter.Update(*backend_, grad, {1e-2, 1.0, t}).newton_schulz_calls, 1);
      muon.Step(reference::Widened(grad), expected);
    }
    EXPECT_LE(reference::RelativeError(parameter.weight, expected), 2e-6);
    EXPECT_LE(reference::RelativeError(parameter.state[0], muon.buffer), 1e-6);
  }
}

// Updating the weights before the decision and the state after it gives the bits of one update.
TEST_P(BackendConformanceTest, MuonInTwoPartsIsMuon) {
  std::vector<RuleConfig> rules = Rules();
  MuonConfig decayed;
  decayed.weight_decay = 0.1;
  decayed.decay_mode = DecayMode::kL2;
  rules.push_back(decayed);
  for (const RuleConfig& rule : rules) {
    if (!std::holds_alternative<MuonConfig>(rule)) continue;
    Parameter whole(rule, {64, 72}, reference::GaussianVector(64 * 72, 31));
    // The first update makes a momentum that is not zero.
    whole.Update(*backend_, reference::GaussianVector(64 * 72, 32), {1e-2, 1.0, 1});
    Parameter parts = whole;
    const Parameter before = whole;
    const std::vector<float> grad = reference::GaussianVector(64 * 72, 33);
    const UpdateResult expected = whole.Update(*backend_, grad, {1e-2, 0.5, 2});
    std::vector<float> new_weight(grad.size());
    const CopiedBuffers copies(*backend_, {grad, parts.weight, new_weight, parts.StateRegions()});
    UpdateBuffers buffers = copies.buffers();
    buffers.part = UpdatePart::kWeights;
    const UpdateResult weights = backend_->ApplyUpdate(rule, {1e-2, 0.5, 2}, parts.shape, buffers);
    copies.Read();
    EXPECT_TRUE(SameState(parts, before));
    EXPECT_EQ(weights.newton_schulz_calls, 1);
    EXPECT_EQ(weights.weights_digest, expected.weights_digest);
    EXPECT_EQ(weights.slots_digest, 0u);
    EXPECT_TRUE(SameBits(new_weight, whole.weight));
    buffers.part = UpdatePart::kState;
    const UpdateResult slots = backend_->ApplyUpdate(rule, {1e-2, 0.5, 2}, parts.shape, buffers);
    copies.Read();
    EXPECT_TRUE(SameState(parts, whole));
    EXPECT_EQ(slots.newton_schulz_calls, 0);
    EXPECT_EQ(slots.weights_digest, 0u);
    EXPECT_EQ(slots.slots_digest, expected.slots_digest);
    EXPECT_TRUE(SameBits(new_weight, whole.weight));
    EXPECT_TRUE(SameBits(parts.weight, before.weight));
  }
}

// The scale depends on the logical shape ([S1], [L1]): storing a matrix as (fan_in, fan_out) swaps
// the scale's arguments and nothing else.
TEST_P(BackendConformanceTest, TransposedMatrixTakesTheScaleOfItsLogicalShape) {
  MuonConfig config;
  config.scale = UpdateScale::kOriginal;
  const std::vector<float> grad = reference::GaussianVector(12 * 48, 10);
  Parameter wide(config, {12, 48}, std::vector<float>(12 * 48));
  wide.Update(*backend_, grad, {1.0, 1.0, 1});
  config.layout.transposed = true;
  Parameter transposed(config, {12, 48}, std::vector<float>(12 * 48));
  transposed.Update(*backend_, grad, {1.0, 1.0, 1});
  ASSERT_EQ(reference::ScaleNamed("original", 48, 12), 2.0);
  for (size_t i = 0; i < grad.size(); ++i) {
    ASSERT_EQ(transposed.weight[i], 2.0f * wide.weight[i]) << i;
  }
}

// A clip factor of 1 leaves the gradient's bits alone ([C5], [C7]). With momentum 0 the state is
// the gradient itself, so the test can see its bits.
TEST_P(BackendConformanceTest, ClipFactorOneLeavesTheGradientsBits) {
  MuonConfig config;
  config.momentum = 0;
  Parameter parameter(config, {5, 5}, std::vector<float>(25));
  std::vector<float> grad = reference::GaussianVector(25, 14);
  grad[0] = 1e-41f;
  grad[1] = 3e38f;
  parameter.Update(*backend_, grad, {1e-2, 1.0, 1});
  EXPECT_TRUE(SameBits(parameter.state[0], grad));
}

// Without Nesterov the direction has the momentum's value but never shares its memory ([M3]). In
// edge 21, Newton-Schulz also runs in bfloat16.
TEST_P(BackendConformanceTest, OrthogonalizationDoesNotReachTheMomentum) {
  for (const NsDType dtype : {NsDType::kFloat32, NsDType::kBFloat16}) {
    MuonConfig config;
    config.nesterov = false;
    config.newton_schulz.dtype = dtype;
    Parameter parameter(config, {16, 16}, std::vector<float>(256));
    const std::vector<float> grad = reference::GaussianVector(256, 15);
    EXPECT_EQ(parameter.Update(*backend_, grad, {1e-2, 1.0, 1}).newton_schulz_calls, 1);
    const float share = static_cast<float>(1.0 - config.momentum);
    for (size_t i = 0; i < grad.size(); ++i) ASSERT_EQ(parameter.state[0][i], share * grad[i]);
  }
}

// Edge cases 1, 3 and 13: neither the loss scale nor a clip factor of 2e-8 shrinks an orthogonal
// update.
TEST_P(BackendConformanceTest, MuonStepsAtFullSizeAtAnyGradientScale) {
  const std::vector<float> grad = reference::GaussianVector(12 * 20, 17);
  Parameter unit(MuonConfig{}, {12, 20}, std::vector<float>(240));
  unit.Update(*backend_, grad, {1.0, 1.0, 1});
  const std::vector<double> expected = reference::Widened(unit.weight);
  for (const double factor : {1e-30, 2e-8, 1e30}) {
    Parameter scaled(MuonConfig{}, {12, 20}, std::vector<float>(240));
    scaled.Update(*backend_, grad, {1.0, factor, 1});
    EXPECT_LE(reference::RelativeError(scaled.weight, expected), 1e-5) << factor;
  }
}

// Edge case 34: Muon accepts matrices of one row or column, and empty ones.
TEST_P(BackendConformanceTest, MuonTakesEveryMatrixShape) {
  const std::vector<std::vector<uint64_t>> shapes = {{1, 1}, {1, 9}, {9, 1}, {7, 13}, {0, 5}};
  for (const std::vector<uint64_t>& shape : shapes) {
    const size_t n = shape[0] * shape[1];
    MuonConfig config;
    Parameter parameter(config, shape, std::vector<float>(n));
    const std::vector<float> grad = reference::GaussianVector(n, 18);
    parameter.Update(*backend_, grad, {1.0, 1.0, 1});
    if (n == 0) continue;
    const reference::Matrix expected =
        -reference::ScaleNamed("match_rms_adamw", shape[0], shape[1]) *
        reference::Orthogonalized({reference::TriplesOfSet("jordan", 5)},
                                  reference::AsMatrix(grad, shape[0], shape[1]));
    EXPECT_LE(reference::RelativeError(parameter.weight, expected), 1e-5)
        << shape[0] << "x" << shape[1];
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_MUON_H_
