// Conformance of several updates in one call, and of where their tensors lie. Part of the suite of
// backend_conformance.h; used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_BATCH_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_BATCH_H_

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "kernels/tensor.h"
#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

inline void ExpectEqualResults(const UpdateResult& actual, const UpdateResult& expected) {
  EXPECT_EQ(actual.newton_schulz_calls, expected.newton_schulz_calls);
  EXPECT_EQ(actual.weights_digest, expected.weights_digest);
  EXPECT_EQ(actual.slots_digest, expected.slots_digest);
  EXPECT_EQ(actual.largest_weight_bits, expected.largest_weight_bits);
  EXPECT_EQ(actual.fault, expected.fault);
}

// Every rule, with equal matrices that a device may batch, others between them, and two updates
// that fault. Learning rates and clip factors differ.
TEST_P(BackendConformanceTest, SeveralUpdatesInOneCallHaveTheBitsOfEachAlone) {
  const std::vector<std::vector<uint64_t>> shapes = {{24, 40}, {40, 24}, {24, 40}, {65, 33}};
  std::vector<Parameter> expected;
  std::vector<UpdateScalars> scalars;
  std::vector<std::vector<float>> grads;
  for (const std::vector<uint64_t>& shape : shapes) {
    for (const RuleConfig& rule : Rules()) {
      const auto id = static_cast<uint32_t>(expected.size());
      const size_t n = shape[0] * shape[1];
      expected.emplace_back(rule, shape, reference::GaussianVector(n, 70 + id));
      grads.push_back(reference::GaussianVector(n, 170 + id));
      scalars.push_back({1e-2 + 1e-4 * id, 1.0 - 1e-3 * id, 1 + id % 3, id});
    }
  }
  grads[7].back() = 3.39e38f;
  expected[7].weight.back() = -3.39e38f;
  expected[14].weight.back() = HUGE_VALF;
  std::vector<Parameter> parameters = expected;
  std::vector<UpdateResult> alone;
  for (size_t i = 0; i < expected.size(); ++i) {
    alone.push_back(expected[i].Update(*backend_, grads[i], scalars[i]));
  }
  EXPECT_EQ(alone[7].fault, UpdateFault::kNotFinite);
  EXPECT_EQ(alone[14].fault, UpdateFault::kNotFinite);
  std::vector<std::unique_ptr<CopiedBuffers>> copies;
  std::vector<Update> updates;
  for (size_t i = 0; i < parameters.size(); ++i) {
    copies.push_back(parameters[i].Copied(*backend_, grads[i]));
    updates.push_back(
        {&parameters[i].rule, scalars[i], parameters[i].shape, copies[i]->buffers(), {}});
  }
  backend_->RunUpdates(absl::MakeSpan(updates));
  for (size_t i = 0; i < parameters.size(); ++i) {
    SCOPED_TRACE(testing::Message() << RuleName(parameters[i].rule) << ", update " << i);
    copies[i]->Read();
    ExpectEqualResults(updates[i].result, alone[i]);
    EXPECT_TRUE(SameBits(parameters[i].weight, expected[i].weight));
    EXPECT_TRUE(SameState(parameters[i], expected[i]));
  }
}

TEST_P(BackendConformanceTest, NoUpdatesAreDoneAtOnce) { backend_->RunUpdates({}); }

// A shard may keep the tensors of a parameter in one allocation, at any multiple of 4 bytes.
TEST_P(BackendConformanceTest, NoBitDependsOnWhereATensorBegins) {
  constexpr uint64_t kCount = 37 * 61;
  const std::vector<float> grad = reference::GaussianVector(kCount, 81);
  for (const RuleConfig& rule : Rules()) {
    Parameter expected(rule, {37, 61}, reference::GaussianVector(kCount, 82));
    const std::vector<float> start = expected.weight;
    const UpdateResult aligned = expected.Update(*backend_, grad, {1e-2, 0.5, 1});
    for (const uint64_t skipped : {4, 8, 60}) {
      // Gradient, old and new weights, then the slots, each `skipped` bytes after a multiple of 64.
      const uint64_t stride = 64 + (4 * kCount + 127) / 64 * 64;
      const Tensor memory = Tensor::Create(*backend_, stride * (3 + expected.slots.size())).value();
      const auto place = [&](size_t i, uint64_t bytes) {
        return memory.region().Sub(i * stride + skipped, bytes);
      };
      backend_->CopyIn(ConstRegion(grad).host_bytes(), place(0, 4 * kCount));
      backend_->CopyIn(ConstRegion(start).host_bytes(), place(1, 4 * kCount));
      std::vector<Region> state;
      for (const StateSlot& slot : expected.slots) {
        state.push_back(place(3 + state.size(), slot.num_bytes));
      }
      const UpdateResult result = backend_->ApplyUpdate(
          rule, {1e-2, 0.5, 1}, expected.shape,
          {place(0, 4 * kCount), place(1, 4 * kCount), place(2, 4 * kCount), state});
      ExpectEqualResults(result, aligned);
      std::vector<float> weight(kCount);
      backend_->CopyOut(place(2, 4 * kCount), Region(weight).host_bytes());
      EXPECT_TRUE(SameBits(weight, expected.weight)) << RuleName(rule) << " " << skipped;
    }
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_BATCH_H_
