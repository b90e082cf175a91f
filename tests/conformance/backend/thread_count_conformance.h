// Shows that the results of a step do not depend on the number of threads that compute it (T17 of
// reliability.md). To run the suite, include this file and instantiate ThreadCountConformanceTest
// with a function that makes a backend of n threads. Compares the bits of every form, precision and
// layout of Muon, and of one rule of each other kind. Used by tests only; each test makes its own
// backends.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_THREAD_COUNT_CONFORMANCE_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_THREAD_COUNT_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

using ThreadedBackendMaker = std::function<std::unique_ptr<Backend>(int threads)>;

class ThreadCountConformanceTest : public ::testing::TestWithParam<ThreadedBackendMaker> {
 protected:
  struct Stepped {
    Parameter parameter;
    std::vector<UpdateResult> results;
  };

  // Makes two steps, so that the second one starts with a momentum.
  static Stepped Step(int threads, const RuleConfig& rule, const std::vector<uint64_t>& shape) {
    size_t n = 1;
    for (const uint64_t extent : shape) n *= extent;
    const std::unique_ptr<Backend> backend = GetParam()(threads);
    Stepped stepped = {Parameter(rule, shape, reference::GaussianVector(n, 1)), {}};
    for (int t = 1; t <= 2; ++t) {
      stepped.results.push_back(
          stepped.parameter.Update(*backend, reference::GaussianVector(n, 10 + t), {1e-2, 0.5, t}));
    }
    return stepped;
  }

  static void ExpectTheSameWithAnyNumberOfThreads(const RuleConfig& rule,
                                                  const std::vector<uint64_t>& shape) {
    const Stepped expected = Step(1, rule, shape);
    for (const int threads : {2, 8}) {
      const Stepped actual = Step(threads, rule, shape);
      EXPECT_TRUE(SameBits(actual.parameter.weight, expected.parameter.weight))
          << threads << " threads";
      EXPECT_TRUE(SameState(actual.parameter, expected.parameter)) << threads << " threads";
      for (size_t t = 0; t < expected.results.size(); ++t) {
        EXPECT_EQ(actual.results[t].weights_digest, expected.results[t].weights_digest) << threads;
        EXPECT_EQ(actual.results[t].slots_digest, expected.results[t].slots_digest) << threads;
      }
    }
  }

  // Both forms in every precision.
  static std::vector<MuonConfig> Muons() {
    std::vector<MuonConfig> muons;
    for (const NsDType dtype : {NsDType::kFloat32, NsDType::kBFloat16, NsDType::kFloat16}) {
      for (const NsForm form : {NsForm::kStandard, NsForm::kGram}) {
        MuonConfig config;
        config.newton_schulz.dtype = dtype;
        config.newton_schulz.form = form;
        if (form == NsForm::kGram) config.newton_schulz.gram_restarts = {2, 3};
        muons.push_back(config);
      }
    }
    return muons;
  }
};

// The shapes are wide and tall, larger than one tile of any product, and no multiple of a tile.
TEST_P(ThreadCountConformanceTest, MuonOfOneMatrix) {
  for (const MuonConfig& config : Muons()) {
    SCOPED_TRACE(testing::Message() << "dtype " << static_cast<int>(config.newton_schulz.dtype)
                                    << ", form " << static_cast<int>(config.newton_schulz.form));
    ExpectTheSameWithAnyNumberOfThreads(config, {250, 410});
    ExpectTheSameWithAnyNumberOfThreads(config, {410, 250});
  }
}

// The matrices are stepped concurrently.
TEST_P(ThreadCountConformanceTest, MuonOfManyMatrices) {
  for (MuonConfig config : Muons()) {
    SCOPED_TRACE(testing::Message() << "dtype " << static_cast<int>(config.newton_schulz.dtype)
                                    << ", form " << static_cast<int>(config.newton_schulz.form));
    config.layout.kind = MatrixLayoutKind::kBatched;
    ExpectTheSameWithAnyNumberOfThreads(config, {9, 40, 72});
    config.layout.kind = MatrixLayoutKind::kHeads;
    config.layout.num_heads = 5;
    ExpectTheSameWithAnyNumberOfThreads(config, {200, 72});
  }
}

TEST_P(ThreadCountConformanceTest, MuonWithAnEncodedMomentum) {
  MuonConfig config;
  config.momentum_dtype = StateDType::kInt8;
  ExpectTheSameWithAnyNumberOfThreads(config, {250, 410});
}

// Updates as speculation does: new weights before the decision, stored apart from the old ones; the
// momentum after it.
TEST_P(ThreadCountConformanceTest, MuonInTwoParts) {
  const std::vector<uint64_t> shape = {250, 410};
  const std::vector<float> grad = reference::GaussianVector(250 * 410, 10);
  std::vector<MuonConfig> configs = Muons();
  configs.emplace_back().momentum_dtype = StateDType::kInt8;
  for (const MuonConfig& config : configs) {
    const RuleConfig rule = config;
    const Parameter before = Step(1, rule, shape).parameter;
    Parameter whole = before;
    const UpdateResult expected = whole.Update(*GetParam()(1), grad, {1e-2, 0.5, 3});
    for (const int threads : {1, 2, 8}) {
      SCOPED_TRACE(testing::Message()
                   << "dtype " << static_cast<int>(config.newton_schulz.dtype) << ", form "
                   << static_cast<int>(config.newton_schulz.form) << ", " << threads << " threads");
      const std::unique_ptr<Backend> backend = GetParam()(threads);
      Parameter parts = before;
      std::vector<float> new_weight(grad.size());
      const CopiedBuffers copies(*backend, {grad, parts.weight, new_weight, parts.StateRegions()});
      UpdateBuffers buffers = copies.buffers();
      buffers.part = UpdatePart::kWeights;
      const UpdateResult weights = backend->ApplyUpdate(rule, {1e-2, 0.5, 3}, shape, buffers);
      buffers.part = UpdatePart::kState;
      const UpdateResult slots = backend->ApplyUpdate(rule, {1e-2, 0.5, 3}, shape, buffers);
      copies.Read();
      EXPECT_TRUE(SameBits(new_weight, whole.weight));
      EXPECT_TRUE(SameState(parts, whole));
      EXPECT_EQ(weights.weights_digest, expected.weights_digest);
      EXPECT_EQ(slots.slots_digest, expected.slots_digest);
    }
  }
}

// Small parameters are updated concurrently, one thread each; one thread updates them one after the
// other. Other tests here update parameters of these shapes with several threads each.
TEST_P(ThreadCountConformanceTest, ManyParameters) {
  struct Case {
    RuleConfig rule;
    std::vector<uint64_t> shape;
  };
  std::vector<Case> cases = {{AdamWConfig(), {32, 4096}}, {SgdConfig(), {32, 4096}}};
  for (const MuonConfig& muon : Muons()) cases.push_back({muon, {250, 410}});
  const auto parameter_of = [](const Case& c) {
    return Parameter(c.rule, c.shape, reference::GaussianVector(c.shape[0] * c.shape[1], 1));
  };
  const auto grad_of = [](const Case& c) {
    return reference::GaussianVector(c.shape[0] * c.shape[1], 10);
  };
  const UpdateScalars scalars = {1e-2, 0.5, 1};
  const std::unique_ptr<Backend> serial = GetParam()(1);
  std::vector<Parameter> expected;
  std::vector<UpdateResult> expected_results;
  for (const Case& c : cases) {
    expected.push_back(parameter_of(c));
    expected_results.push_back(expected.back().Update(*serial, grad_of(c), scalars));
  }
  for (const int threads : {1, 2, 8}) {
    const std::unique_ptr<Backend> backend = GetParam()(threads);
    std::vector<Parameter> parameters;
    for (const Case& c : cases) parameters.push_back(parameter_of(c));
    std::vector<std::unique_ptr<CopiedBuffers>> copies;
    std::vector<Update> updates;
    for (size_t i = 0; i < cases.size(); ++i) {
      Parameter& parameter = parameters[i];
      copies.push_back(parameter.Copied(*backend, grad_of(cases[i])));
      updates.push_back({&parameter.rule, scalars, parameter.shape, copies.back()->buffers(), {}});
    }
    backend->RunUpdates(absl::MakeSpan(updates));
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(testing::Message() << threads << " threads, case " << i);
      copies[i]->Read();
      EXPECT_EQ(updates[i].result.weights_digest, expected_results[i].weights_digest);
      EXPECT_EQ(updates[i].result.slots_digest, expected_results[i].slots_digest);
      EXPECT_TRUE(SameBits(parameters[i].weight, expected[i].weight));
      EXPECT_TRUE(SameState(parameters[i], expected[i]));
    }
  }
}

// The sizes exceed one thread's range of an element-wise pass and are no multiple of it.
TEST_P(ThreadCountConformanceTest, ElementWiseRules) {
  SgdConfig momentum;
  momentum.momentum = 0.9;
  momentum.nesterov = true;
  AdamWConfig bf16;
  bf16.momentum_dtype = StateDType::kBFloat16;
  const std::vector<RuleConfig> rules = {SgdConfig{}, momentum, AdamWConfig{}, bf16, LionConfig{}};
  for (const RuleConfig& rule : rules) {
    SCOPED_TRACE(RuleName(rule));
    ExpectTheSameWithAnyNumberOfThreads(rule, {251, 1031});
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_THREAD_COUNT_CONFORMANCE_H_
