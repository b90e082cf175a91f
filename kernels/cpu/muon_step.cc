#include "kernels/cpu/muon_step.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/types/optional.h"
#include "kernels/cpu/parallel_ranges.h"
#include "kernels/matrix_layout.h"
#include "kernels/muon_scalars.h"
#include "kernels/mutation.h"
#include "kernels/orthogonalize/newton_schulz.h"
#include "kernels/reduce/digest.h"
#include "kernels/reduce/grad_norm.h"
#include "kernels/rules/muon_elements.h"
#include "kernels/state_codec.h"
#include "kernels/update_fault.h"
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

// Updates `momentum` and writes `direction`, for the elements from `first` on.
void Advance(const MuonMomentumScalars& scalars, const UpdateBuffers& buffers, int64_t first,
             absl::Span<float> momentum, float* direction) {
  const float* grad = buffers.grad.floats().data() + first;
  const float* param = buffers.param.host_floats().data() + first;
  const int64_t n = static_cast<int64_t>(momentum.size());
  if (scalars.decay.l2 != 0) {
    RunVectorized<MuonDirectionKernel<true>>(&scalars, grad, param, momentum.data(), direction, n);
  } else {
    RunVectorized<MuonDirectionKernel<false>>(&scalars, grad, param, momentum.data(), direction, n);
  }
}

// Number of elements that stay in the first-level cache until they are digested; with compact
// state, also while they are fp32.
constexpr int64_t kChunk = 64 * kStateGroup;
static_assert(kChunk % (2 * kStateGroup) == 0, "encoded chunks end where a digested word does");

// Number of elements that one thread steps at a time. The norm of a direction is summed over as
// many, so that it is computed while they are cached.
constexpr int64_t kPiece = kNormPiece;
static_assert(kPiece % kChunk == 0, "pieces are whole chunks");

// Computes momentum and direction (formulas [M1] and [M2]) for elements [begin, end). The direction
// is a copy even without Nesterov (rule [M3]), taken of the new momentum before its state is
// rounded (rule [Q1]). No direction if `direction` is null. Returns the digest of the new state, if
// that is written.
UpdateResult DirectionOf(StateDType dtype, const MuonMomentumScalars& scalars,
                         const UpdateBuffers& buffers, const TensorDigester& digester,
                         int64_t begin, int64_t end, float* direction) {
  const bool encoded = dtype != StateDType::kFloat32;
  const bool writes_state = buffers.part != UpdatePart::kWeights;
  const absl::Span<std::byte> state = buffers.state[0].host_bytes();
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

// Facts about the new weights of some rows of a block.
struct SteppedRows {
  uint64_t digest = 0;
  uint32_t largest_weight_bits = 0;
  // Sum of squares of these rows of the orthogonalized update.
  double sum_squares = 0;

  void Add(const SteppedRows& rows) {
    digest += rows.digest;
    largest_weight_bits = std::max(largest_weight_bits, rows.largest_weight_bits);
    sum_squares += rows.sum_squares;
  }
};

// Steps the weights by `orthogonal`, the update of the parameter's elements from `element` on.
SteppedRows StepWeights(const MuonWeightScalars& scalars, absl::Span<const float> orthogonal,
                        const UpdateBuffers& buffers, int64_t element,
                        const TensorDigester& digester) {
  SteppedRows stepped;
  const float* const param = buffers.param.host_floats().data();
  const auto end = static_cast<int64_t>(orthogonal.size());
  for (int64_t first = 0; first < end; first += kChunk) {
    const int64_t count = std::min(kChunk, end - first);
    const int64_t at = element + first;
    const absl::Span<float> written = buffers.new_param.host_floats().subspan(at, count);
    RunVectorized<MuonWeightKernel>(&scalars, orthogonal.data() + first, param + at, written.data(),
                                    count);
    stepped.digest += digester.Of(written, at);
    stepped.sum_squares += FactsOf(orthogonal.subspan(first, count)).sum_squares;
    stepped.largest_weight_bits =
        std::max(stepped.largest_weight_bits, LargestMagnitudeBits(written));
  }
  return stepped;
}

// Returns the position in the parameter at which each row of a block starts.
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

// The update of one parameter from its direction (formulas [M4] and [M5]).
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
        digester_(scalars.parameter_id, kWeightSlot),
        most_norm_of_rank_1_(MostOrthogonalNorm(config.newton_schulz, 1)) {}

  // Steps the weights of a block while its orthogonalized rows are cached. `norm` is that of the
  // block's direction, if it is known.
  UpdateResult Run(const MatrixBlock& block, absl::optional<MatrixNorm> norm, Gemm& gemm,
                   ThreadPool& pool) const {
    const MuonWeightScalars after = WeightScalars(config_, scalars_, shape_, block);
    const std::vector<int64_t> rows = RowElements(block);
    std::vector<float> gathered;
    const OrthogonalizedMatrix matrix = {
        {block.rows, block.cols}, MatrixOf(block, rows, gathered), norm};
    // Indexed by row, so that the sum of squares has one order.
    std::vector<SteppedRows> stepped(block.rows);
    NewtonSchulz(config_.newton_schulz, matrix, gemm, pool,
                 [&](int64_t first, absl::Span<const float> values) {
                   const int64_t row = first / block.cols;
                   stepped[row] = StepRows(after, rows, row, block.cols, values);
                 });
    SteppedRows whole;
    for (const SteppedRows& some : stepped) whole.Add(some);
    return ResultOf(block, whole);
  }

 private:
  // Returns the block's elements of the direction as a contiguous array: in place, or in
  // `gathered`.
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

  UpdateResult ResultOf(const MatrixBlock& block, const SteppedRows& whole) const {
    UpdateResult result;
    result.weights_digest = whole.digest;
    result.largest_weight_bits = whole.largest_weight_bits;
    result.fault =
        FaultOf(block, {whole.sum_squares, whole.largest_weight_bits}, most_norm_of_rank_1_);
    return result;
  }

  // Steps the rows of a block from `row` on; rows that are contiguous in memory are stepped
  // together.
  SteppedRows StepRows(const MuonWeightScalars& after, const std::vector<int64_t>& rows,
                       int64_t row, int64_t cols, absl::Span<const float> values) const {
    SteppedRows stepped;
    const auto count = static_cast<int64_t>(values.size()) / cols;
    for (int64_t begin = 0, end = 0; begin < count; begin = end) {
      end = begin + 1;
      while (end < count && rows[row + end] == rows[row + end - 1] + cols) ++end;
      stepped.Add(StepWeights(after, values.subspan(begin * cols, (end - begin) * cols), buffers_,
                              rows[row + begin], digester_));
    }
    return stepped;
  }

  const MuonConfig& config_;
  const UpdateScalars& scalars_;
  const absl::Span<const uint64_t> shape_;
  const UpdateBuffers& buffers_;
  const absl::Span<float> direction_;
  const TensorDigester digester_;
  const double most_norm_of_rank_1_;
};

bool AreManyAndSmall(const std::vector<MatrixBlock>& blocks) {
  return blocks.size() > 1 &&
         std::all_of(blocks.begin(), blocks.end(), [](const MatrixBlock& block) {
           return block.rows * block.cols <= kSmallMatrixElements;
         });
}

}  // namespace

UpdateResult ApplyMuon(const MuonConfig& config, const UpdateScalars& scalars,
                       absl::Span<const uint64_t> shape, const UpdateBuffers& given, Gemm& gemm,
                       ThreadPool& pool) {
  const auto blocks = MatrixBlocks(config.layout, shape);
  CHECK(blocks.ok()) << blocks.status();
  const MuonMomentumScalars before = MomentumScalars(config, scalars);
  const auto n = static_cast<int64_t>(given.param.num_floats());
  const TensorDigester momentum(scalars.parameter_id, 1);
  if (given.part == UpdatePart::kState) {
    return SumOverRanges(pool, n, kPiece, [&](int64_t begin, int64_t end) {
      return DirectionOf(config.momentum_dtype, before, given, momentum, begin, end, nullptr);
    });
  }
  // Uses new_param as scratch for the direction: a block's new weights are written after its
  // direction was read. If new_param aliases param, direction and new weights get separate memory,
  // because the old weights are still read then.
  const bool in_place = given.new_param.data() == given.param.data();
  const auto memory = std::make_unique_for_overwrite<float[]>(in_place ? n : 0);
  UpdateBuffers buffers = given;
  if (in_place) buffers.new_param = absl::MakeSpan(memory.get(), n);
  const absl::Span<float> direction = buffers.new_param.host_floats();
  std::vector<MatrixNorm> norms((n + kPiece - 1) / kPiece);
  UpdateResult result = SumOverRanges(pool, n, kPiece, [&](int64_t begin, int64_t end) {
    const UpdateResult piece =
        DirectionOf(config.momentum_dtype, before, buffers, momentum, begin, end, direction.data());
    norms[begin / kPiece] = NormOfPiece(direction.subspan(begin, end - begin));
    return piece;
  });
  result.newton_schulz_calls = 1;

  // Each block is stepped as if it were a parameter of its own (rule [M4]).
  const BlockStep step(config, scalars, shape, buffers, direction);
  std::vector<UpdateResult> stepped(blocks->size());
  if (AreManyAndSmall(*blocks)) {
    pool.ParallelFor(static_cast<int64_t>(blocks->size()), [&](int64_t i) {
      stepped[i] = step.Run((*blocks)[i], absl::nullopt, gemm, pool);
    });
  } else if (blocks->size() == 1 && IsDense(blocks->front())) {
    MatrixNorm norm;
    for (const MatrixNorm& piece : norms) norm.Add(piece);
    stepped[0] = step.Run(blocks->front(), norm, gemm, pool);
  } else {
    for (size_t i = 0; i < blocks->size(); ++i) {
      stepped[i] = step.Run((*blocks)[i], absl::nullopt, gemm, pool);
    }
  }
  UpdateFault fault = UpdateFault::kNone;
  for (const UpdateResult& block : stepped) {
    result.weights_digest += block.weights_digest;
    result.largest_weight_bits = std::max(result.largest_weight_bits, block.largest_weight_bits);
    if (fault == UpdateFault::kNone) fault = block.fault;
  }
  if (fault != UpdateFault::kNone) KeepWeights(fault, scalars.parameter_id, buffers, result);
  if (Mutated(Mutation::kMomentumAliased) && config.momentum_dtype == StateDType::kFloat32) {
    memcpy(buffers.state[0].data(), direction.data(), buffers.state[0].size());
  }
  if (in_place)
    std::copy(direction.begin(), direction.end(), given.new_param.host_floats().begin());
  return result;
}

}  // namespace kaon::kernels
