// Products and transposition of matrix blocks (blocked_matrix.h) with the AMX tile registers and
// AVX-512 of x86-64 (performance.md section 0). Call them only if HasAmx(), within the lifetime of
// an AmxTiles of the calling thread. Pure functions over borrowed, 64-byte aligned blocks; any
// thread.
// A block adds to a sum in two parts: the products of its even and of its odd inner indices. Each
// part is summed in ascending order, fused, in fp32; then the parts are added. Subnormal operands
// and sums count as 0.
#ifndef KAON_KERNELS_GEMM_AMX_TILES_H_
#define KAON_KERNELS_GEMM_AMX_TILES_H_

#include <cstdint>

#include "kernels/gemm/blocked_matrix.h"

namespace kaon::kernels {

// Returns true if this machine has AMX tiles and the system lets this process use them. The first
// call asks the system for permission.
bool HasAmx();

// Configures the tile registers of the calling thread for the lifetime of this object. While they
// are in use, the system saves 8 KiB more at every thread switch.
class AmxTiles {
 public:
  AmxTiles();
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

// Sums of one block of a product: four tiles of 16 x 16, ordered by rows of tiles.
struct alignas(64) SumsOfBlock {
  float values[kBlockElements];
};

// Packs a block of the right operand for the tiles: two tiles of 16 columns, whose rows have pairs
// of neighbours along the inner index. PackBlock reads B's own block:
void PackBlock(const uint16_t* block, uint16_t* packed);
// PackTransposedBlock reads the block of B's transpose:
void PackTransposedBlock(const uint16_t* block, uint16_t* packed);

// sums <- (adds ? sums : 0) + the products of `inner` blocks of a row of A, contiguous in memory,
// with the same number of packed blocks of B.
void MultiplyBlocks(const uint16_t* a, const uint16_t* packed_b, int64_t inner, bool adds,
                    SumsOfBlock& sums);

// to <- alpha sums + beta addend, fused and rounded once to bf16; with beta = 0, addend is not
// read. `to` may be `addend`.
void RoundSums(const SumsOfBlock& sums, float alpha, float beta, const uint16_t* addend,
               uint16_t* to);

// to <- the transposed block.
void TransposeBlock(const uint16_t* block, uint16_t* to);

// Returns an element of a block's sums.
inline float SumAt(const SumsOfBlock& sums, int64_t row, int64_t col) {
  return sums.values[(row / 16 * 2 + col / 16) * 256 + row % 16 * 16 + col % 16];
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GEMM_AMX_TILES_H_
