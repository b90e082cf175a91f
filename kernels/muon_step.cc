#include "kernels/muon_step.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/digest.h"
#include "kernels/matrix_layout.h"
#include "kernels/mutation.h"
#include "kernels/orthogonalize/newton_schulz.h"
#include "kernels/pieces.h"
#include "kernels/rules/gradient_clip.h"
#include "kernels/rules/muon.h"
#include "kernels/rules/muon_elements.h"
#include "kernels/state_codec.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

template <bool reads_param>
struct MuonDirectionKernel {
  KAON_HOST_DEVICE static void Run(const MuonMomentumScalars* scalars, const float* grad,
                                   const float* param, float* momentum, float* direction,
                                   int64_t n) {
    const MuonMomentumScalars s = *scalars;
    for (int64_t i = 0; i < n; ++i) {
      float m = momentum[i];
      direction[i] = MuonDirection(s, grad[i], reads_param ? param[i] : 0.0f, m);
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

// Updates `momentum` and writes `direction`, for elements `first` and on.
void Advance(const MuonMomentumScalars& scalars, const UpdateBuffers& buffers, int64_t first,
             absl::Span<float> momentum, float* direction) {
  const float* grad = buffers.grad.data() + first;
  const float* param = buffers.param.data() + first;
  const int64_t n = static_cast<int64_t>(momentum.size());
  if (scalars.decay.l2 != 0) {
    RunVectorized<MuonDirectionKernel<true>>(&scalars, grad, param, momentum.data(), direction, n);
  } else {
    RunVectorized<MuonDirectionKernel<false>>(&scalars, grad, param, momentum.data(), direction, n);
  }
}

// Elements that stay in the first cache between being written and digested, and, of a compact
// state, while they are fp32.
constexpr int64_t kChunk = 64 * kStateGroup;
static_assert(kChunk % (2 * kStateGroup) == 0, "encoded chunks end where a digested word does");

// Elements that one thread steps at a time.
constexpr int64_t kPiece = 16 * kChunk;

// [M1], [M2] for elements [begin, end). A copy even without Nesterov ([M3]), and of the new
// momentum before its state is rounded ([Q1]). Returns the digest of the new state.
UpdateResult DirectionOf(StateDType dtype, const MuonMomentumScalars& scalars,
                         const UpdateBuffers& buffers, const TensorDigester& digester,
                         int64_t begin, int64_t end, float* direction) {
  const bool encoded = dtype != StateDType::kFloat32;
  const absl::Span<std::byte> state = buffers.state[0];
  std::array<float, kChunk> chunk;
  UpdateResult result;
  for (int64_t first = begin; first < end; first += kChunk) {
    const int64_t count = std::min(kChunk, end - first);
    float* stored = reinterpret_cast<float*>(state.data()) + first;
    const absl::Span<float> momentum(encoded ? chunk.data() : stored, count);
    if (encoded) DecodeState(dtype, state, first, momentum);
    Advance(scalars, buffers, first, momentum, direction + first);
    if (encoded) EncodeState(dtype, momentum, first, state);
    if (encoded && Mutated(Mutation::kInt8DirectionFromState)) {
      DecodeState(dtype, state, first, absl::MakeSpan(direction + first, count));
    }
    const int64_t first_byte = StateBytes(dtype, first);
    const int64_t end_byte = StateBytes(dtype, first + count);
    result.slots_digest +=
        digester.OfBytes(state.subspan(first_byte, end_byte - first_byte), first_byte);
  }
  return result;
}

// Elements [begin, end) of `orthogonal`, which belong to those of the parameter from `element` on;
// the digest of what was written.
UpdateResult StepWeights(const MuonWeightScalars& scalars, absl::Span<const float> orthogonal,
                         const UpdateBuffers& buffers, int64_t element,
                         const TensorDigester& digester, int64_t begin, int64_t end) {
  UpdateResult result;
  for (int64_t first = begin; first < end; first += kChunk) {
    const int64_t count = std::min(kChunk, end - first);
    const int64_t at = element + first;
    const absl::Span<float> written = buffers.new_param.subspan(at, count);
    RunVectorized<MuonWeightKernel>(&scalars, orthogonal.data() + first, buffers.param.data() + at,
                                    written.data(), count);
    result.weights_digest += digester.Of(written, at);
  }
  return result;
}

// visit(element of the parameter, element of the block, count) for each stretch of memory of the
// block, in the block's order.
template <typename Visit>
void ForEachStretch(const MatrixBlock& block, const Visit& visit) {
  int64_t at = 0;
  for (const RowRun& run : block.runs) {
    const bool dense = block.row_stride == block.cols;
    const int64_t count = dense ? run.num_rows * block.cols : block.cols;
    for (int64_t i = 0; i < (dense ? 1 : run.num_rows); ++i) {
      visit(run.offset + i * block.row_stride, at, count);
      at += count;
    }
  }
}

// The block's elements of `direction`, one after the other: where they are, or copied to `scratch`.
absl::Span<float> MatrixOf(const MatrixBlock& block, absl::Span<float> direction,
                           std::vector<float>& scratch) {
  const size_t n = block.rows * block.cols;
  if (block.row_stride == block.cols && block.runs.size() == 1) {
    return direction.subspan(block.runs[0].offset, n);
  }
  scratch.resize(std::max(scratch.size(), n));
  ForEachStretch(block, [&](int64_t element, int64_t at, int64_t count) {
    std::copy_n(direction.data() + element, count, scratch.data() + at);
  });
  return absl::MakeSpan(scratch).first(n);
}

}  // namespace

UpdateResult ApplyMuon(const MuonConfig& config, const UpdateScalars& scalars,
                       absl::Span<const uint64_t> shape, const UpdateBuffers& buffers, Gemm& gemm,
                       ThreadPool& pool) {
  const auto blocks = MatrixBlocks(config.layout, shape);
  CHECK(blocks.ok()) << blocks.status();
  const DecayScalars decay = PrepareDecay(config, scalars.lr);
  MuonMomentumScalars before;
  before.clip = PrepareClip(scalars.clip_factor);
  before.momentum = static_cast<float>(config.momentum);
  before.grad_share =
      (config.momentum_form == MomentumForm::kSum) != Mutated(Mutation::kEmaAndSumSwapped)
          ? 1.0f
          : static_cast<float>(1.0 - config.momentum);
  before.nesterov = config.nesterov;
  before.decay = decay;
  std::vector<float> direction(buffers.param.size());
  const TensorDigester momentum(scalars.parameter_id, 1);
  UpdateResult result = SumOverPieces(pool, static_cast<int64_t>(direction.size()), kPiece,
                                      [&](int64_t begin, int64_t end) {
                                        return DirectionOf(config.momentum_dtype, before, buffers,
                                                           momentum, begin, end, direction.data());
                                      });
  result.newton_schulz_calls = 1;

  const TensorDigester weights(scalars.parameter_id, kWeightSlot);
  // [M4]: every block as if it were a parameter of its own, one after the other to share memory.
  std::vector<float> scratch;
  for (const MatrixBlock& block : *blocks) {
    const absl::Span<float> update = MatrixOf(block, absl::MakeSpan(direction), scratch);
    NewtonSchulz(config.newton_schulz, {block.rows, block.cols}, update, update, gemm);
    const bool from_kernel = Mutated(Mutation::kConvScaleFromKernelSize) && shape.size() > 3;
    const MatrixShape fans =
        from_kernel ? MatrixShape{static_cast<int64_t>(shape[2]), static_cast<int64_t>(shape[3])}
                    : MatrixShape{block.rows, block.cols};
    MuonWeightScalars after;
    const double step_size = scalars.lr * Muon::UpdateScaleOf(config, fans.rows, fans.cols);
    after.decay = Mutated(Mutation::kDecayWithScaledRate) ? PrepareDecay(config, step_size) : decay;
    after.step_size = static_cast<float>(step_size);
    ForEachStretch(block, [&](int64_t element, int64_t at, int64_t count) {
      const absl::Span<const float> orthogonal = update.subspan(at, count);
      const auto step = [&](int64_t begin, int64_t end) {
        return StepWeights(after, orthogonal, buffers, element, weights, begin, end);
      };
      result.weights_digest += SumOverPieces(pool, count, kPiece, step).weights_digest;
    });
  }
  if (Mutated(Mutation::kMomentumAliased) && config.momentum_dtype == StateDType::kFloat32) {
    memcpy(buffers.state[0].data(), direction.data(), buffers.state[0].size());
  }
  return result;
}

}  // namespace kaon::kernels
