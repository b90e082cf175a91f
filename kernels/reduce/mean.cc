#include "kernels/reduce/mean.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/parallel_ranges.h"
#include "kernels/host_device.h"
#include "kernels/mutation.h"
#include "kernels/reduce/digest.h"
#include "kernels/reduce/division.h"
#include "kernels/reduce/grad_norm.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

template <bool multiplies>
struct ScaleBlock {
  KAON_HOST_DEVICE static void Run(float* x, float by, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = Divided({by, multiplies}, x[i]);
  }
};

// x[i] <- x[i] / divisor.
void Divide(absl::Span<float> x, float divisor) {
  const auto n = static_cast<int64_t>(x.size());
  if (divisor == 1) return;
  const Division division = PrepareDivision(divisor);
  if (division.multiplies) {
    RunVectorized<ScaleBlock<true>>(x.data(), division.by, n);
  } else {
    RunVectorized<ScaleBlock<false>>(x.data(), division.by, n);
  }
}

// Number of blocks that one thread finishes at a time.
constexpr int64_t kPieceBlocks = 16;

}  // namespace

MeanFacts FinishMeanOn(ThreadPool& pool, const MeanScalars& scalars, absl::Span<float> sum) {
  const auto n = static_cast<int64_t>(sum.size());
  const TensorDigester digester(scalars.parameter_id, kGradientSlot);
  const float loss_scale = Mutated(Mutation::kLossScaleNotTakenOut) ? 1.0f : scalars.loss_scale;
  std::vector<BlockFacts> facts((n + kNormBlockElements - 1) / kNormBlockElements);
  constexpr int64_t kPiece = kPieceBlocks * kNormBlockElements;
  std::vector<uint64_t> digests((n + kPiece - 1) / kPiece);
  ForEachRange(pool, n, kPiece, [&](int64_t piece, int64_t end) {
    for (int64_t begin = piece; begin < end; begin += kNormBlockElements) {
      const absl::Span<float> block = sum.subspan(begin, std::min(kNormBlockElements, end - begin));
      Divide(block, scalars.total_weight);
      Divide(block, loss_scale);
      facts[begin / kNormBlockElements] = FactsOf(block, scalars.takes_sum);
      const bool is_last = begin + 2 * kNormBlockElements > end;
      digests[piece / kPiece] +=
          digester.Of(block, begin, is_last ? nullptr : block.data() + kNormBlockElements);
    }
  });
  MeanFacts result;
  for (size_t i = 0; i < facts.size(); ++i) {
    AddBlock(facts[i], sum.subspan(i * kNormBlockElements, kNormBlockElements), result.norm);
  }
  for (const uint64_t digest : digests) result.digest += digest;
  return result;
}

}  // namespace kaon::kernels
