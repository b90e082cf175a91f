// The fixture of the backend conformance suite (backend_conformance.h): a backend, a parameter with
// its state, and the comparisons. Used by tests only; each test makes its own backend.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_FIXTURE_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace kaon::kernels {

using BackendMaker = std::function<std::unique_ptr<Backend>()>;

// One parameter with its state, updated through a backend.
struct Parameter {
  Parameter(const RuleConfig& rule, std::vector<uint64_t> shape, std::vector<float> values)
      : rule(rule), shape(std::move(shape)), weight(std::move(values)) {
    slots = StateSlots(rule, this->shape);
    for (const StateSlot& slot : slots) {
      state.emplace_back((slot.num_bytes + sizeof(float) - 1) / sizeof(float), 0.0f);
    }
  }

  UpdateResult Update(Backend& backend, const std::vector<float>& grad,
                      const UpdateScalars& scalars) {
    return Update(backend, GradView(grad), scalars);
  }

  UpdateResult Update(Backend& backend, const GradView& grad, const UpdateScalars& scalars) {
    return UpdateInto(backend, grad, scalars, weight);
  }

  UpdateResult UpdateInto(Backend& backend, const GradView& grad, const UpdateScalars& scalars,
                          std::vector<float>& new_weight) {
    std::vector<absl::Span<std::byte>> bytes;
    for (size_t k = 0; k < state.size(); ++k) bytes.push_back(StateBytesOf(k));
    return backend.ApplyUpdate(rule, scalars, shape,
                               {grad, weight, absl::MakeSpan(new_weight), bytes});
  }

  absl::Span<std::byte> StateBytesOf(size_t slot) {
    return {reinterpret_cast<std::byte*>(state[slot].data()),
            static_cast<size_t>(slots[slot].num_bytes)};
  }

  RuleConfig rule;
  std::vector<uint64_t> shape;
  std::vector<float> weight;
  std::vector<StateSlot> slots;
  // Elements of each fp32 slot. An encoded slot is kept as its bytes, padded to whole floats.
  std::vector<std::vector<float>> state;
};

// Returns true if the bits are equal. -0 differs from 0, and a NaN equals itself.
inline bool SameBits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() &&
         (x.empty() || memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
}

// Compares bits, because an encoded slot that is read as floats may contain NaN.
inline bool SameState(const Parameter& x, const Parameter& y) {
  bool same = x.state.size() == y.state.size();
  for (size_t k = 0; same && k < x.state.size(); ++k) same = SameBits(x.state[k], y.state[k]);
  return same;
}

class BackendConformanceTest : public ::testing::TestWithParam<BackendMaker> {
 protected:
  BackendConformanceTest() : backend_(GetParam()()) {}

  // Encodes `in` as `dtype`, one byte off alignment.
  static std::vector<std::byte> Encode(DType dtype, const std::vector<float>& in) {
    std::vector<std::byte> bytes(1 + in.size() * SizeOf(dtype));
    FromFloat(dtype, in, bytes.data() + 1);
    return bytes;
  }

  int64_t FoldVector(DType dtype, const std::vector<float>& in, float weight, bool first,
                     std::vector<float>& acc) {
    const std::vector<std::byte> bytes = Encode(dtype, in);
    double sum_squares = 0;
    return backend_->Fold(dtype, bytes.data() + 1, weight, first, absl::MakeSpan(acc),
                          &sum_squares);
  }

  // Returns the sum of squares that folding `in` adds.
  double FoldedSquares(DType dtype, const std::vector<float>& in, bool first = true) {
    const std::vector<std::byte> bytes = Encode(dtype, in);
    std::vector<float> acc(in.size());
    double sum_squares = 0;
    backend_->Fold(dtype, bytes.data() + 1, 3.0f, first, absl::MakeSpan(acc), &sum_squares);
    return sum_squares;
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
