#include "kernels/muon_step.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/types/optional.h"
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
  const float* grad = buffers.grad.floats().data() + first;
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

// Elements that one thread steps at a time: as many as the norm of a direction is summed over, so
// that it is taken while they are in the cache.
constexpr int64_t kPiece = kNormPiece;
static_assert(kPiece % kChunk == 0, "pieces are whole chunks");

// [M1], [M2] for elements [begin, end). A copy even without Nesterov ([M3]), and of the new
// momentum before its state is rounded ([Q1]); none where `direction` is null. Returns the digest
// of the new state, if that is written.
UpdateResult DirectionOf(StateDType dtype, const MuonMomentumScalars& scalars,
                         const UpdateBuffers& buffers, const TensorDigester& digester,
                         int64_t begin, int64_t end, float* direction) {
  const bool encoded = dtype != StateDType::kFloat32;
  const bool writes_state = buffers.part != UpdatePart::kWeights;
  const absl::Span<std::byte> state = buffers.state[0];
  std::array<float, kChunk> chunk;
  std::array<float, kChunk> unread;
  UpdateResult result;
  for (int64_t first = begin; first < end; first += kChunk) {
    const int64_t count = std::min(kChunk, end - first);
    float* stored = reinterpret_cast<float*>(state.data()) + first;
    const bool in_place = !encoded && writes_state;
    const absl::Span<float> momentum(in_place ? stored : chunk.data(), count);
    if (encoded) DecodeState(dtype, state, first, momentum);
    if (!encoded && !in_place) std::copy_n(stored, count, momentum.begin());
    float* const to = direction == nullptr ? unread.data() : direction + first;
    Advance(scalars, buffers, first, momentum, to);
    if (!writes_state) continue;
    if (encoded) EncodeState(dtype, momentum, first, state);
    if (encoded && Mutated(Mutation::kInt8DirectionFromState)) {
      DecodeState(dtype, state, first, absl::MakeSpan(to, count));
    }
    const int64_t first_byte = StateBytes(dtype, first);
    const int64_t end_byte = StateBytes(dtype, first + count);
    result.slots_digest +=
        digester.OfBytes(state.subspan(first_byte, end_byte - first_byte), first_byte);
  }
  return result;
}

// The digest of the weights that `orthogonal`, which belongs to the elements of the parameter from
// `element` on, steps.
uint64_t StepWeights(const MuonWeightScalars& scalars, absl::Span<const float> orthogonal,
                     const UpdateBuffers& buffers, int64_t element,
                     const TensorDigester& digester) {
  uint64_t digest = 0;
  const auto end = static_cast<int64_t>(orthogonal.size());
  for (int64_t first = 0; first < end; first += kChunk) {
    const int64_t count = std::min(kChunk, end - first);
    const int64_t at = element + first;
    const absl::Span<float> written = buffers.new_param.subspan(at, count);
    RunVectorized<MuonWeightKernel>(&scalars, orthogonal.data() + first, buffers.param.data() + at,
                                    written.data(), count);
    digest += digester.Of(written, at);
  }
  return digest;
}

// Where each row of a block starts in the parameter.
std::vector<int64_t> RowElements(const MatrixBlock& block) {
  std::vector<int64_t> elements;
  for (const RowRun& run : block.runs) {
    for (int64_t i = 0; i < run.num_rows; ++i) {
      elements.push_back(run.offset + i * block.row_stride);
    }
  }
  return elements;
}

bool IsDense(const MatrixBlock& block) {
  return block.row_stride == block.cols && block.runs.size() == 1;
}

// The update of one parameter after its direction is there: [M4], [M5].
class BlockStep {
 public:
  BlockStep(const MuonConfig& config, const UpdateScalars& scalars,
            absl::Span<const uint64_t> shape, const UpdateBuffers& buffers,
            absl::Span<float> direction)
      : config_(config),
        scalars_(scalars),
        shape_(shape),
        buffers_(buffers),
        direction_(direction),
        digester_(scalars.parameter_id, kWeightSlot) {}

  // Steps the weights of a block while its orthogonalized rows are in the cache; `norm` is that of
  // the block's direction, if somebody knows it. The digest of the weights.
  uint64_t Run(const MatrixBlock& block, absl::optional<MatrixNorm> norm, Gemm& gemm,
               ThreadPool& pool) const {
    const MuonWeightScalars after = ScalarsOf(block);
    const std::vector<int64_t> rows = RowElements(block);
    std::vector<float> gathered;
    const OrthogonalizedMatrix matrix = {
        {block.rows, block.cols}, MatrixOf(block, rows, gathered), norm};
    std::atomic<uint64_t> digest{0};
    NewtonSchulz(config_.newton_schulz, matrix, gemm, pool,
                 [&](int64_t first, absl::Span<const float> values) {
                   digest += StepRows(after, rows, first / block.cols, block.cols, values);
                 });
    return digest;
  }

 private:
  MuonWeightScalars ScalarsOf(const MatrixBlock& block) const {
    const bool from_kernel = Mutated(Mutation::kConvScaleFromKernelSize) && shape_.size() > 3;
    const MatrixShape fans =
        from_kernel ? MatrixShape{static_cast<int64_t>(shape_[2]), static_cast<int64_t>(shape_[3])}
                    : MatrixShape{block.rows, block.cols};
    MuonWeightScalars after;
    const double step_size = scalars_.lr * Muon::UpdateScaleOf(config_, fans.rows, fans.cols);
    after.decay =
        PrepareDecay(config_, Mutated(Mutation::kDecayWithScaledRate) ? step_size : scalars_.lr);
    after.step_size = static_cast<float>(step_size);
    return after;
  }

  // The block's elements of the direction, one after the other: where they are, or in `gathered`.
  absl::Span<float> MatrixOf(const MatrixBlock& block, const std::vector<int64_t>& rows,
                             std::vector<float>& gathered) const {
    if (IsDense(block)) {
      return direction_.subspan(block.runs[0].offset, block.rows * block.cols);
    }
    gathered.reserve(block.rows * block.cols);
    for (const int64_t element : rows) {
      const float* row = direction_.data() + element;
      gathered.insert(gathered.end(), row, row + block.cols);
    }
    return absl::MakeSpan(gathered);
  }

  // Rows `row` and on of a block; those that follow each other in memory together.
  uint64_t StepRows(const MuonWeightScalars& after, const std::vector<int64_t>& rows, int64_t row,
                    int64_t cols, absl::Span<const float> values) const {
    uint64_t digest = 0;
    const auto count = static_cast<int64_t>(values.size()) / cols;
    for (int64_t begin = 0, end = 0; begin < count; begin = end) {
      end = begin + 1;
      while (end < count && rows[row + end] == rows[row + end - 1] + cols) ++end;
      digest += StepWeights(after, values.subspan(begin * cols, (end - begin) * cols), buffers_,
                            rows[row + begin], digester_);
    }
    return digest;
  }

  const MuonConfig& config_;
  const UpdateScalars& scalars_;
  const absl::Span<const uint64_t> shape_;
  const UpdateBuffers& buffers_;
  const absl::Span<float> direction_;
  const TensorDigester digester_;
};

MuonMomentumScalars MomentumScalars(const MuonConfig& config, const UpdateScalars& scalars) {
  MuonMomentumScalars before;
  before.clip = PrepareClip(scalars.clip_factor);
  before.momentum = static_cast<float>(config.momentum);
  before.grad_share =
      (config.momentum_form == MomentumForm::kSum) != Mutated(Mutation::kEmaAndSumSwapped)
          ? 1.0f
          : static_cast<float>(1.0 - config.momentum);
  before.nesterov = config.nesterov;
  before.decay = PrepareDecay(config, scalars.lr);
  return before;
}

bool AreManyAndSmall(const std::vector<MatrixBlock>& blocks) {
  return blocks.size() > 1 &&
         std::all_of(blocks.begin(), blocks.end(), [](const MatrixBlock& block) {
           return block.rows * block.cols <= kSmallMatrixElements;
         });
}

}  // namespace

UpdateResult ApplyMuon(const MuonConfig& config, const UpdateScalars& scalars,
                       absl::Span<const uint64_t> shape, const UpdateBuffers& buffers, Gemm& gemm,
                       ThreadPool& pool) {
  const auto blocks = MatrixBlocks(config.layout, shape);
  CHECK(blocks.ok()) << blocks.status();
  const MuonMomentumScalars before = MomentumScalars(config, scalars);
  const auto n = static_cast<int64_t>(buffers.param.size());
  const TensorDigester momentum(scalars.parameter_id, 1);
  if (buffers.part == UpdatePart::kState) {
    return SumOverPieces(pool, n, kPiece, [&](int64_t begin, int64_t end) {
      return DirectionOf(config.momentum_dtype, before, buffers, momentum, begin, end, nullptr);
    });
  }
  // Where the new weights go: those of a block are written when its direction is done with. Unless
  // the old ones, which are read then, too, are there.
  const bool in_place = buffers.new_param.data() == buffers.param.data();
  const auto memory = std::make_unique_for_overwrite<float[]>(in_place ? n : 0);
  const absl::Span<float> direction =
      in_place ? absl::MakeSpan(memory.get(), n) : buffers.new_param;
  std::vector<MatrixNorm> norms((n + kPiece - 1) / kPiece);
  UpdateResult result = SumOverPieces(pool, n, kPiece, [&](int64_t begin, int64_t end) {
    const UpdateResult piece =
        DirectionOf(config.momentum_dtype, before, buffers, momentum, begin, end, direction.data());
    norms[begin / kPiece] = NormOfPiece(direction.subspan(begin, end - begin));
    return piece;
  });
  result.newton_schulz_calls = 1;

  // [M4]: every block as if it were a parameter of its own.
  const BlockStep step(config, scalars, shape, buffers, direction);
  if (AreManyAndSmall(*blocks)) {
    std::atomic<uint64_t> digest{0};
    pool.ParallelFor(static_cast<int64_t>(blocks->size()), [&](int64_t i) {
      digest += step.Run((*blocks)[i], absl::nullopt, gemm, pool);
    });
    result.weights_digest = digest;
  } else if (blocks->size() == 1 && IsDense(blocks->front())) {
    MatrixNorm norm;
    for (const MatrixNorm& piece : norms) norm.Add(piece);
    result.weights_digest = step.Run(blocks->front(), norm, gemm, pool);
  } else {
    for (const MatrixBlock& block : *blocks) {
      result.weights_digest += step.Run(block, absl::nullopt, gemm, pool);
    }
  }
  if (Mutated(Mutation::kMomentumAliased) && config.momentum_dtype == StateDType::kFloat32) {
    memcpy(buffers.state[0].data(), direction.data(), buffers.state[0].size());
  }
  return result;
}

}  // namespace kaon::kernels
