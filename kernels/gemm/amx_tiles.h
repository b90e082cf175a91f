// Products and turns of blocks of a matrix (blocked_matrix.h) by the AMX tile registers and AVX-512
// of x86-64 (performance.md section 0). Only where HasAmx(); within an AmxTiles of the calling
// thread. Pure functions over borrowed, 64-byte aligned blocks; any thread.
//
// What one block adds to a sum: the products of its even and of its odd inner indices, summed apart
// in ascending order, fused, in fp32, and then added up. Subnormal operands and sums count as 0.
#ifndef KAON_KERNELS_GEMM_AMX_TILES_H_
#define KAON_KERNELS_GEMM_AMX_TILES_H_

#include <cstdint>

#include "kernels/gemm/blocked_matrix.h"

namespace kaon::kernels {

// Whether this machine has the tiles and the system lets this process use them, which the first
// call asks for.
bool HasAmx();

// Tile registers of the calling thread, set up for as long as this lives: while they are in use,
// the system saves 8 KiB more at every change of threads.
class AmxTiles {
 public:
  AmxTiles();
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

// Sums of one block of a product: four tiles of 16 x 16, by rows of tiles.
struct alignas(64) SumsOfBlock {
  float values[kBlockElements];
};

// A block of the right operand as the tiles take it: two tiles of 16 columns, each row of which has
// pairs of neighbours along the inner index.
// For B from its own block:
void PackBlock(const uint16_t* block, uint16_t* packed);
// For B from the block of its transpose:
void PackTransposedBlock(const uint16_t* block, uint16_t* packed);

// sums <- (adds ? sums : 0) + the products of `inner` blocks of a row of A, one after the other in
// memory, with as many packed ones of B.
void MultiplyBlocks(const uint16_t* a, const uint16_t* packed_b, int64_t inner, bool adds,
                    SumsOfBlock& sums);

// to <- alpha sums + beta addend, fused and rounded once to bf16; with beta = 0, addend is not
// read. `to` may be `addend`.
void RoundSums(const SumsOfBlock& sums, float alpha, float beta, const uint16_t* addend,
               uint16_t* to);

// to <- the transposed block.
void TransposeBlock(const uint16_t* block, uint16_t* to);

// Element of a block's sums.
inline float SumAt(const SumsOfBlock& sums, int64_t row, int64_t col) {
  return sums.values[(row / 16 * 2 + col / 16) * 256 + row % 16 * 16 + col % 16];
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GEMM_AMX_TILES_H_
