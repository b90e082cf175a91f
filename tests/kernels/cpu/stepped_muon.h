// One parameter and its momentum, which ApplyMuon steps with the reference products. Used by tests
// only; one thread.
#ifndef KAON_TESTS_KERNELS_CPU_STEPPED_MUON_H_
#define KAON_TESTS_KERNELS_CPU_STEPPED_MUON_H_

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cpu/muon_step.h"
#include "kernels/gemm/reference_gemm.h"
#include "kernels/state_codec.h"

namespace kaon::kernels {

struct SteppedMuon {
  SteppedMuon(MuonConfig config, std::vector<uint64_t> shape, std::vector<float> weight)
      : config(std::move(config)), shape(std::move(shape)), weight(std::move(weight)) {
    state.resize(StateBytes(this->config.momentum_dtype, this->weight.size()));
  }

  UpdateResult Step(const std::vector<float>& grad, const UpdateScalars& scalars) {
    ReferenceGemm gemm;
    ThreadPool pool(1);
    const Region slot = absl::MakeSpan(state);
    return ApplyMuon(config, scalars, shape, {grad, weight, weight, {&slot, 1}}, gemm, pool);
  }

  std::vector<float> Momentum() const {
    std::vector<float> momentum(weight.size());
    DecodeState(config.momentum_dtype, state, 0, absl::MakeSpan(momentum));
    return momentum;
  }

  MuonConfig config;
  std::vector<uint64_t> shape;
  std::vector<float> weight;
  std::vector<std::byte> state;
};

// Returns true if the bits are equal, so that -0 differs from 0.
inline bool EqualBits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() &&
         (x.empty() || memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_KERNELS_CPU_STEPPED_MUON_H_
