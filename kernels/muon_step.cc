#include "kernels/muon_step.h"

#include <glog/logging.h>

#include <vector>

#include "kernels/orthogonalize/newton_schulz.h"
#include "kernels/rules/muon.h"
#include "kernels/rules/muon_elements.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

float* Floats(absl::Span<std::byte> slot) { return reinterpret_cast<float*>(slot.data()); }

struct MuonDirectionKernel {
  KAON_HOST_DEVICE static void Run(const MuonMomentumScalars* scalars, const float* grad,
                                   float* momentum, float* direction, int64_t n) {
    const MuonMomentumScalars s = *scalars;
    for (int64_t i = 0; i < n; ++i) {
      float m = momentum[i];
      direction[i] = MuonDirection(s, grad[i], m);
      momentum[i] = m;
    }
  }
};

struct MuonWeightKernel {
  KAON_HOST_DEVICE static void Run(const MuonWeightScalars* scalars, const float* orthogonal,
                                   const float* param, float* new_param, int64_t n) {
    const MuonWeightScalars s = *scalars;
    // new_param may be param: each element is read before it is written.
#if !defined(__clang__)
#pragma GCC ivdep
#endif
    for (int64_t i = 0; i < n; ++i) new_param[i] = MuonWeight(s, orthogonal[i], param[i]);
  }
};

}  // namespace

UpdateResult ApplyMuon(const MuonConfig& config, const UpdateScalars& scalars,
                       absl::Span<const uint64_t> shape, const UpdateBuffers& buffers, Gemm& gemm) {
  CHECK(shape.size() == 2) << "muon takes matrices, given " << shape.size() << " dimensions";
  const MatrixShape matrix{static_cast<int64_t>(shape[0]), static_cast<int64_t>(shape[1])};
  const int64_t n = static_cast<int64_t>(buffers.param.size());
  MuonMomentumScalars before;
  before.clip = static_cast<float>(scalars.clip_factor);
  before.momentum = static_cast<float>(config.momentum);
  before.one_minus_momentum = static_cast<float>(1.0 - config.momentum);
  before.nesterov = config.nesterov;
  // [M3]: a copy even without Nesterov; orthogonalizing must not reach the state.
  std::vector<float> update(buffers.param.size());
  RunVectorized<MuonDirectionKernel>(static_cast<const MuonMomentumScalars*>(&before),
                                     buffers.grad.data(), Floats(buffers.state[0]), update.data(),
                                     n);

  NewtonSchulz(config.newton_schulz, matrix, update, absl::MakeSpan(update), gemm);

  MuonWeightScalars after;
  after.minus_decay = static_cast<float>(0.0 - scalars.lr * config.weight_decay);
  after.step_size =
      static_cast<float>(scalars.lr * Muon::UpdateScaleOf(config, matrix.rows, matrix.cols));
  RunVectorized<MuonWeightKernel>(static_cast<const MuonWeightScalars*>(&after),
                                  static_cast<const float*>(update.data()), buffers.param.data(),
                                  buffers.new_param.data(), n);
  return UpdateResult{.newton_schulz_calls = 1};
}

}  // namespace kaon::kernels
