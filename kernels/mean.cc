#include "kernels/mean.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/block_facts.h"
#include "kernels/digest.h"
#include "kernels/grad_norm.h"
#include "kernels/mutation.h"
#include "kernels/pieces.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

// Dividing by exactly 1 changes no bit, so neither divisor needs to be left out by hand; the time
// is the memory's and the digest's.
template <bool takes_sum>
struct DivideBlock {
  KAON_HOST_DEVICE static BlockFacts Run(float* sum, float total_weight, float loss_scale,
                                         int64_t n) {
    const float scale = Mutated(Mutation::kLossScaleNotTakenOut) ? 1.0f : loss_scale;
    BlockScan scan;
    int64_t i = 0;
    for (; i + BlockScan::kWidth <= n; i += BlockScan::kWidth) {
      BlockScan::Floats x;
      memcpy(&x, sum + i, sizeof(x));
      x = (x / total_weight) / scale;
      memcpy(sum + i, &x, sizeof(x));
      scan.template AddWhole<takes_sum>(x);
    }
    for (; i < n; ++i) {
      sum[i] = (sum[i] / total_weight) / scale;
      scan.template AddOne<takes_sum>(sum[i], i);
    }
    return scan.Facts();
  }
};

// Blocks that one thread finishes at a time.
constexpr int64_t kPieceBlocks = 16;

}  // namespace

MeanFacts FinishMeanOn(ThreadPool& pool, const MeanScalars& scalars, absl::Span<float> sum) {
  const auto n = static_cast<int64_t>(sum.size());
  const TensorDigester digester(scalars.parameter_id, kGradientSlot);
  std::vector<BlockFacts> facts((n + kNormBlockElements - 1) / kNormBlockElements);
  constexpr int64_t kPiece = kPieceBlocks * kNormBlockElements;
  std::vector<uint64_t> digests((n + kPiece - 1) / kPiece);
  ForEachPiece(pool, n, kPiece, [&](int64_t piece, int64_t end) {
    for (int64_t begin = piece; begin < end; begin += kNormBlockElements) {
      const absl::Span<float> block = sum.subspan(begin, std::min(kNormBlockElements, end - begin));
      const auto count = static_cast<int64_t>(block.size());
      facts[begin / kNormBlockElements] =
          scalars.takes_sum ? RunVectorized<DivideBlock<true>>(block.data(), scalars.total_weight,
                                                               scalars.loss_scale, count)
                            : RunVectorized<DivideBlock<false>>(block.data(), scalars.total_weight,
                                                                scalars.loss_scale, count);
      const bool is_last = begin + 2 * kNormBlockElements > end;
      digests[piece / kPiece] += digester.Of(
          block, begin, is_last ? Ahead{} : Ahead{block.data() + kNormBlockElements, nullptr});
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
