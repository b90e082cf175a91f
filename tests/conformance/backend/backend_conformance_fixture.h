// The fixture of the backend conformance suite (backend_conformance.h): a backend, whose memory
// the tests fill and read by copies alone. Used by tests only; each test makes its own backend.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_FIXTURE_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "tests/conformance/backend/backend_conformance_parameter.h"
#include "tests/conformance/gradient_sum.h"

namespace kaon::kernels {

using BackendMaker = std::function<std::unique_ptr<Backend>()>;

class BackendConformanceTest : public ::testing::TestWithParam<BackendMaker> {
 protected:
  BackendConformanceTest() : backend_(GetParam()()) {}

  // Encodes `in` as `dtype`, one byte off alignment.
  static std::vector<std::byte> Encode(DType dtype, const std::vector<float>& in) {
    std::vector<std::byte> bytes(1 + in.size() * SizeOf(dtype));
    FromFloat(dtype, in, bytes.data() + 1);
    return bytes;
  }

  // Folds `in` into `acc` as a contribution of its own.
  FoldFacts FoldVector(DType dtype, const std::vector<float>& in, float weight, bool first,
                       std::vector<float>& acc) {
    const std::vector<std::byte> bytes = Encode(dtype, in);
    GradientSum sum(*backend_, acc);
    sum.Fold(dtype, absl::MakeConstSpan(bytes).subspan(1), weight, 0, first);
    acc = sum.Floats();
    return sum.accumulation().FactsOf(0);
  }

  // Returns the sum of squares that folding `in` adds.
  double FoldedSquares(DType dtype, const std::vector<float>& in, bool first = true) {
    std::vector<float> acc(in.size());
    return FoldVector(dtype, in, 3.0f, first, acc).sum_squares;
  }

  // Turns a sum into the mean.
  MeanFacts FinishMean(const MeanScalars& scalars, std::vector<float>& sum) {
    GradientSum mean(*backend_, sum);
    const MeanFacts facts = mean.accumulation().FinishMean(scalars);
    sum = mean.Floats();
    return facts;
  }

  static std::vector<RuleConfig> Rules() {
    MuonConfig bfloat16;
    bfloat16.newton_schulz.dtype = NsDType::kBFloat16;
    MuonConfig plain;
    plain.nesterov = false;
    MuonConfig encoded;
    encoded.momentum_dtype = StateDType::kInt8;
    AdamWConfig amsgrad;
    amsgrad.amsgrad = true;
    amsgrad.momentum_dtype = StateDType::kInt8;
    amsgrad.exp_avg_sq_dtype = StateDType::kSqrtUInt8;
    SgdConfig momentum;
    momentum.momentum = 0.9;
    momentum.nesterov = true;
    LionConfig half;
    half.momentum_dtype = StateDType::kBFloat16;
    return {MuonConfig{}, bfloat16,    plain,    encoded,      AdamWConfig{},
            amsgrad,      SgdConfig{}, momentum, LionConfig{}, half};
  }

  const std::unique_ptr<Backend> backend_;
};

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_FIXTURE_H_
