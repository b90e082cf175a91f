#include "kernels/gemm/blocked_matrix.h"

#include <cstring>

#include "kernels/float_bits.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

struct Round {
  KAON_HOST_DEVICE static void Run(const float* from, uint16_t* to) {
    for (int64_t i = 0; i < kBlockElements; ++i) to[i] = FloatToBFloat16(from[i]);
  }
};

struct Widen {
  KAON_HOST_DEVICE static void Run(const uint16_t* from, float* to) {
    for (int64_t i = 0; i < kBlockElements; ++i) to[i] = BFloat16ToFloat(from[i]);
  }
};

}  // namespace

void CopyToBlock(const uint16_t* from, int64_t stride, int64_t height, int64_t width,
                 uint16_t* block) {
  if (height < kBlockSide || width < kBlockSide) memset(block, 0, 2 * kBlockElements);
  for (int64_t i = 0; i < height; ++i) {
    memcpy(block + i * kBlockSide, from + i * stride, 2 * width);
  }
}

void RoundToBlock(const float* from, int64_t height, int64_t width, uint16_t* block) {
  if (height == kBlockSide && width == kBlockSide) {
    RunVectorized<Round>(from, block);
    return;
  }
  memset(block, 0, 2 * kBlockElements);
  for (int64_t i = 0; i < height; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      block[i * kBlockSide + j] = FloatToBFloat16(from[i * kBlockSide + j]);
    }
  }
}

void WidenBlock(const uint16_t* block, float* to) { RunVectorized<Widen>(block, to); }

}  // namespace kaon::kernels
