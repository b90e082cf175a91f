#include "kernels/reduce/cpu_accumulation.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/dtype.h"
#include "kernels/reduce/fold.h"
#include "kernels/reduce/mean.h"

namespace kaon::kernels {

void CpuAccumulation::Fold(const GradientChunk& chunk) {
  if (facts_.size() <= chunk.contribution) facts_.resize(chunk.contribution + size_t{1});
  FoldFacts& facts = facts_[chunk.contribution];
  const size_t element_bytes = SizeOf(chunk.dtype);
  const size_t block_bytes = kFoldBlockElements * element_bytes;
  uint64_t next = chunk.offset;
  const auto fold = [&](const std::byte* bytes, size_t num_bytes) {
    const size_t num_elements = num_bytes / element_bytes;
    CHECK(next <= sum_.size() && num_elements <= sum_.size() - next)
        << "elements " << next << " .. " << next + num_elements << " of " << sum_.size();
    const int64_t non_finite = FoldElements(chunk.dtype, bytes, chunk.weight, chunk.first,
                                            sum_.subspan(next, num_elements), &facts.sum_squares);
    facts.non_finite = facts.non_finite || non_finite >= 0;
    next += num_elements;
  };
  // Blocks and even elements may span two slices that the transport received. Reassemble blocks, so
  // that the sum of squares does not depend on the slices.
  std::array<std::byte, kFoldBlockElements * sizeof(float)> split;
  size_t split_bytes = 0;
  const absl::Span<const std::byte> memory = chunk.memory.host_bytes();
  CHECK(memory.empty() || chunk.slices.empty()) << "a chunk has both slices and memory";
  for (absl::Span<const std::byte> slice :
       memory.empty() ? chunk.slices : absl::MakeConstSpan(&memory, 1)) {
    if (split_bytes > 0) {
      const size_t taken = std::min(block_bytes - split_bytes, slice.size());
      std::copy_n(slice.data(), taken, split.data() + split_bytes);
      split_bytes += taken;
      slice.remove_prefix(taken);
      if (split_bytes < block_bytes) continue;
      fold(split.data(), block_bytes);
    }
    split_bytes = slice.size() % block_bytes;
    const size_t whole = slice.size() - split_bytes;
    if (whole > 0) fold(slice.data(), whole);
    std::copy_n(slice.data() + whole, split_bytes, split.data());
  }
  if (split_bytes > 0) fold(split.data(), split_bytes);
}

void CpuAccumulation::SetZero() { std::fill(sum_.begin(), sum_.end(), 0.0f); }

MeanFacts CpuAccumulation::FinishMean(const MeanScalars& scalars) {
  return FinishMeanOn(pool_, scalars, sum_);
}

FoldFacts CpuAccumulation::FactsOf(uint32_t contribution) const {
  return contribution < facts_.size() ? facts_[contribution] : FoldFacts{};
}

}  // namespace kaon::kernels
