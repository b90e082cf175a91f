// bf16 matrices in blocks of 32 x 32. A block has 2 KiB and is row-major; rows of blocks follow one
// another. A tile kernel thus reads without gaps and writes a whole block at once. Blocks at the
// right and lower edge are padded with zeros. Pure functions; any thread.
#ifndef KAON_KERNELS_GEMM_BLOCKED_MATRIX_H_
#define KAON_KERNELS_GEMM_BLOCKED_MATRIX_H_

#include <cstdint>

namespace kaon::kernels {

inline constexpr int64_t kBlockSide = 32;
inline constexpr int64_t kBlockElements = kBlockSide * kBlockSide;

// Returns the number of blocks for `n` rows or columns.
inline int64_t BlocksOf(int64_t n) { return (n + kBlockSide - 1) / kBlockSide; }

inline int64_t BlockedElements(int64_t rows, int64_t cols) {
  return BlocksOf(rows) * BlocksOf(cols) * kBlockElements;
}

// Returns the index of an element in a matrix of `cols` columns.
inline int64_t BlockedIndex(int64_t cols, int64_t row, int64_t col) {
  const int64_t block = row / kBlockSide * BlocksOf(cols) + col / kBlockSide;
  return block * kBlockElements + row % kBlockSide * kBlockSide + col % kBlockSide;
}

// `block` <- `height` rows of `width` bf16 values, `stride` elements apart, padded with zeros.
void CopyToBlock(const uint16_t* from, int64_t stride, int64_t height, int64_t width,
                 uint16_t* block);

// `block` <- rows of kBlockSide fp32 values, rounded to nearest even (rule [N6]).
void RoundToBlock(const float* from, int64_t height, int64_t width, uint16_t* block);

// Widens the whole block to fp32, row-major.
void WidenBlock(const uint16_t* block, float* to);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GEMM_BLOCKED_MATRIX_H_
