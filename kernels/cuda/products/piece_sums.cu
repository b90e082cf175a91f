#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/piece_sums.h"

namespace kaon::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void AddPiecesKernel(PieceSums sums, const float* pieces, const float* c, float* d) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= sums.rows * sums.cols) return;
  const int64_t at = i / sums.cols * sums.layout.pitch + i % sums.cols;
  double sum = 0;
  for (int64_t piece = 0; piece < sums.count; ++piece) {
    sum += double{pieces[piece * sums.layout.stride + at]};
  }
  sum *= double{sums.alpha};
  if (sums.beta != 0) sum += double{sums.beta} * double{c[at]};
  d[at] = static_cast<float>(sum);
}

}  // namespace

void AddPieces(Stream& stream, const PieceSums& sums, const float* pieces, const float* c,
               float* d) {
  const int64_t blocks = (sums.rows * sums.cols + kThreads - 1) / kThreads;
  Launch(stream, {.blocks = blocks, .threads = kThreads}, AddPiecesKernel, sums, pieces, c, d);
}

}  // namespace kaon::kernels::cuda
