// Implements kernels/gemm/amx_tiles.h in plain loops, so that the code above the tiles runs on
// every machine. The tests of the tiles hold for both.
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/float_bits.h"
#include "kernels/gemm/amx_tiles.h"
#include "kernels/vector_dispatch.h"
#include "tests/kernels/gemm/tile_product.h"

namespace kaon::kernels {
namespace {

constexpr int64_t kSide = kRowsOfTile;
constexpr int64_t kTileValues = kSide * kSide;
constexpr int64_t kTilePairs = kTileValues;

// The thread's tiles are set up; another setting up would end with the first.
thread_local bool are_set_up = false;

}  // namespace

bool HasAmx() { return true; }

AmxTiles::AmxTiles() {
  CHECK(!are_set_up) << "tiles are set up twice in one thread";
  are_set_up = true;
}

AmxTiles::~AmxTiles() { are_set_up = false; }

void PackBlock(const uint16_t* block, uint16_t* packed) {
  for (int64_t k = 0; k < kBlockSide; ++k) {
    for (int64_t j = 0; j < kBlockSide; ++j) {
      packed[j / kSide * 2 * kTilePairs + k / 2 * 2 * kSide + j % kSide * 2 + k % 2] =
          block[k * kBlockSide + j];
    }
  }
}

void PackTransposedBlock(const uint16_t* block, uint16_t* packed) {
  uint16_t turned[kBlockElements];
  TransposeBlock(block, turned);
  PackBlock(turned, packed);
}

void MultiplyBlocks(const uint16_t* a, const uint16_t* packed_b, int64_t inner, bool adds,
                    SumsOfBlock& sums) {
  CHECK(are_set_up) << "tiles are used outside AmxTiles";
  for (int64_t k = 0; k < inner; ++k, a += kBlockElements, packed_b += kBlockElements) {
    for (int64_t tile = 0; tile < 4; ++tile) {
      RunVectorized<MultiplyTile>(a + tile / 2 * kSide * kBlockSide,
                                  packed_b + tile % 2 * 2 * kTilePairs, adds || k > 0,
                                  sums.values + tile * kTileValues);
    }
  }
}

void RoundSums(const SumsOfBlock& sums, float alpha, float beta, const uint16_t* addend,
               uint16_t* to) {
  for (int64_t i = 0; i < kBlockSide; ++i) {
    for (int64_t j = 0; j < kBlockSide; ++j) {
      const int64_t at = i * kBlockSide + j;
      const float scaled = alpha * SumAt(sums, i, j);
      const float sum = beta == 0 ? scaled : std::fma(beta, BFloat16ToFloat(addend[at]), scaled);
      to[at] = FloatToBFloat16(WithoutSubnormals(sum));
    }
  }
}

void TransposeBlock(const uint16_t* block, uint16_t* to) {
  uint16_t turned[kBlockElements];
  for (int64_t i = 0; i < kBlockSide; ++i) {
    for (int64_t j = 0; j < kBlockSide; ++j) turned[j * kBlockSide + i] = block[i * kBlockSide + j];
  }
  std::copy(turned, turned + kBlockElements, to);
}

}  // namespace kaon::kernels
