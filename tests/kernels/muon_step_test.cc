#include "kernels/muon_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/orthogonalize/newton_schulz.h"
#include "kernels/reference_gemm.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

using reference::GaussianVector;

// One parameter with its momentum, stepped with the reference products.
struct Stepped {
  Stepped(MuonConfig config, std::vector<uint64_t> shape, std::vector<float> weight)
      : config(std::move(config)), shape(std::move(shape)), weight(std::move(weight)) {
    momentum.resize(this->weight.size());
  }

  UpdateResult Step(const std::vector<float>& grad, const UpdateScalars& scalars) {
    ReferenceGemm gemm;
    const absl::Span<std::byte> slot(reinterpret_cast<std::byte*>(momentum.data()),
                                     momentum.size() * sizeof(float));
    return ApplyMuon(config, scalars, shape,
                     {grad, weight, absl::MakeSpan(weight), absl::MakeSpan(&slot, 1)}, gemm);
  }

  MuonConfig config;
  std::vector<uint64_t> shape;
  std::vector<float> weight;
  std::vector<float> momentum;
};

// The default configuration's step ([M1]-[M5]) operation by operation: replays of old steps, and
// everyone's digests, depend on each of these roundings.
TEST(MuonStepTest, DefaultStepIsTheseOperations) {
  constexpr int kRows = 6;
  constexpr int kCols = 10;
  MuonConfig config;
  config.weight_decay = 0.1;
  Stepped actual(config, {kRows, kCols}, GaussianVector(kRows * kCols, 1));
  std::vector<float> weight = actual.weight;
  std::vector<float> momentum(weight.size());
  ReferenceGemm gemm;
  for (int t = 1; t <= 4; ++t) {
    const std::vector<float> grad = GaussianVector(weight.size(), 10 + t);
    const UpdateScalars scalars = {0.02, 0.3, t};
    EXPECT_EQ(actual.Step(grad, scalars).newton_schulz_calls, 1);

    std::vector<float> update(weight.size());
    for (size_t i = 0; i < weight.size(); ++i) {
      const float share = static_cast<float>(1.0 - 0.95) * (0.3f * grad[i]);
      momentum[i] = std::fma(0.95f, momentum[i], share);
      update[i] = std::fma(0.95f, momentum[i], share);
    }
    NewtonSchulz(config.newton_schulz, {kRows, kCols}, update, absl::MakeSpan(update), gemm);
    const float decay = static_cast<float>(0.02 * 0.1);
    const float step = static_cast<float>(0.02 * (0.2 * std::sqrt(10.0)));
    for (size_t i = 0; i < weight.size(); ++i) {
      weight[i] = std::fma(-step, update[i], std::fma(-decay, weight[i], weight[i]));
    }
    ASSERT_EQ(actual.momentum, momentum) << t;
    ASSERT_EQ(actual.weight, weight) << t;
  }
}

}  // namespace
}  // namespace kaon::kernels
