// Conformance of the digests of finished tensors that a backend computes while it writes
// (kernels/reduce/digest.h). Part of the suite of backend_conformance.h; used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_DIGEST_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_DIGEST_H_

#include <gtest/gtest.h>

#include <utility>
#include <variant>
#include <vector>

#include "kernels/reduce/digest.h"
#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

// Digest of all state slots of the parameter, read again. An encoded slot is digested as the words
// that store it, which is how Parameter::state keeps it.
inline uint64_t SlotsDigestOf(const Parameter& parameter, uint32_t id) {
  uint64_t digest = 0;
  for (size_t k = 0; k < parameter.state.size(); ++k) {
    digest += TensorDigest(id, static_cast<uint32_t>(k) + 1, parameter.state[k]);
  }
  return digest;
}

inline void ExpectDigestsOfWhatWasWritten(Backend& backend, Parameter parameter) {
  const size_t n = parameter.weight.size();
  std::vector<float> beside(n);
  for (int t = 1; t <= 3; ++t) {
    const auto id = static_cast<uint32_t>(40 + t);
    const std::vector<float> grad = reference::GaussianVector(n, 50 + t);
    const UpdateScalars scalars{1e-2, 0.5, t, id};
    // Updates alternate between in place and out of place.
    UpdateResult result;
    if (t == 2) {
      result = parameter.Update(backend, grad, scalars);
    } else {
      result = parameter.UpdateInto(backend, grad, scalars, beside);
      std::swap(parameter.weight, beside);
    }
    ASSERT_EQ(result.weights_digest, TensorDigest(id, kWeightSlot, parameter.weight)) << t;
    ASSERT_EQ(result.slots_digest, SlotsDigestOf(parameter, id)) << t;
  }
}

TEST_P(BackendConformanceTest, ReturnsTheDigestsOfWhatItWrote) {
  // The shapes are empty, smaller than a vector, with an incomplete group, and several chunks with
  // an odd rest.
  const std::vector<std::vector<uint64_t>> shapes = {{0, 5}, {1, 1}, {3, 11}, {9, 17}, {3, 4099}};
  for (const RuleConfig& rule : Rules()) {
    for (const std::vector<uint64_t>& shape : shapes) {
      for (const StateDType dtype :
           {StateDType::kFloat32, StateDType::kBFloat16, StateDType::kInt8}) {
        RuleConfig stored = rule;
        std::visit([dtype](auto& config) { config.momentum_dtype = dtype; }, stored);
        SCOPED_TRACE(::testing::Message() << RuleName(rule) << " of " << shape[0] << " x "
                                          << shape[1] << ", dtype " << static_cast<int>(dtype));
        const size_t n = shape[0] * shape[1];
        ExpectDigestsOfWhatWasWritten(*backend_,
                                      Parameter(stored, shape, reference::GaussianVector(n, 49)));
      }
    }
  }
}

TEST_P(BackendConformanceTest, ReturnsTheDigestsOfWhatItWroteInEveryLayout) {
  const auto layout = [](MatrixLayoutKind kind, std::vector<uint64_t> sizes, uint64_t heads) {
    MatrixLayout made;
    made.kind = kind;
    made.sizes = std::move(sizes);
    made.num_heads = heads;
    return made;
  };
  const std::vector<std::pair<MatrixLayout, std::vector<uint64_t>>> cases = {
      {layout(MatrixLayoutKind::kBatched, {4, 4}, 0), {3, 8, 5}},
      {layout(MatrixLayoutKind::kConvFlatten, {}, 0), {12, 1, 3, 3}},
      {layout(MatrixLayoutKind::kSplitRows, {24, 8, 8}, 0), {40, 160}},
      {layout(MatrixLayoutKind::kQkvInterleaved, {12, 4, 4}, 0), {40, 160}},
      {layout(MatrixLayoutKind::kHeads, {}, 4), {20, 6}},
      {layout(MatrixLayoutKind::kSplitCols, {3, 8, 1}, 0), {70, 12}}};
  for (const auto& [cut, shape] : cases) {
    for (const StateDType dtype : {StateDType::kFloat32, StateDType::kInt8}) {
      MuonConfig config;
      config.layout = cut;
      config.momentum_dtype = dtype;
      SCOPED_TRACE(static_cast<int>(cut.kind));
      size_t n = 1;
      for (const uint64_t extent : shape) n *= extent;
      ExpectDigestsOfWhatWasWritten(*backend_,
                                    Parameter(config, shape, reference::GaussianVector(n, 48)));
    }
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_DIGEST_H_
