#include <cmath>

#include "kernels/cuda/elements/stored_element.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/cross_check.h"
#include "kernels/float_bits.h"

namespace kaon::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <typename Bits>
struct PatternArguments {
  Bits* x;
  int64_t rows;
  int64_t cols;
  int64_t pitch;
  int64_t stride;
  int64_t count;
  bool symmetric;
};

// Finalizer of MurmurHash3.
KAON_HOST_DEVICE uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

template <NsDType dtype>
__global__ void PatternKernel(PatternArguments<typename StoredElement<dtype>::Bits> args) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.count) return;
  const int64_t matrix = i / (args.rows * args.cols);
  const int64_t row = i / args.cols % args.rows;
  const int64_t col = i % args.cols;
  const bool swaps = args.symmetric && col > row;
  const int64_t place =
      (matrix * args.rows + (swaps ? col : row)) * args.cols + (swaps ? row : col);
  const auto hash = static_cast<int32_t>(Mixed(static_cast<uint64_t>(place) + 1) >> 40);
  const float value = static_cast<float>(hash - (1 << 23)) / static_cast<float>(1 << 23);
  args.x[matrix * args.stride + row * args.pitch + col] = StoredElement<dtype>::Round(value);
}

template <typename Bits>
struct CompareArguments {
  const Bits* x;
  const Bits* y;
  int64_t rows;
  int64_t cols;
  int64_t pitch;
  int64_t stride;
  int64_t count;
  float floor;
  uint32_t* largest_bits;
};

template <NsDType dtype>
__global__ void CompareKernel(CompareArguments<typename StoredElement<dtype>::Bits> args) {
  uint32_t largest = 0;
  const int64_t threads = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < args.count; i += threads) {
    const int64_t matrix = i / (args.rows * args.cols);
    const int64_t at =
        matrix * args.stride + i / args.cols % args.rows * args.pitch + i % args.cols;
    const float x = StoredElement<dtype>::Load(args.x[at]);
    const float y = StoredElement<dtype>::Load(args.y[at]);
    const float larger = fabsf(x) > fabsf(y) ? fabsf(x) : fabsf(y);
    // The bits of magnitudes are ordered as they are, and NaN is above infinity.
    const uint32_t bits = BitsOf(fabsf(x - y) / (larger + args.floor)) & 0x7fffffff;
    if (bits > largest) largest = bits;
  }
  atomicMax(args.largest_bits, largest);
}

int64_t BlocksFor(int64_t threads) { return (threads + kThreads - 1) / kThreads; }

}  // namespace

void FillPattern(Stream& stream, const CheckedMatrices& matrices, bool symmetric, void* x) {
  const BatchLayout layout = LayoutOf(matrices.dtype, matrices.rows, matrices.cols);
  const int64_t count = matrices.batch * matrices.rows * matrices.cols;
  ForDType(matrices.dtype, [&]<NsDType dtype>() {
    using Bits = typename StoredElement<dtype>::Bits;
    const PatternArguments<Bits> arguments = {
        static_cast<Bits*>(x), matrices.rows, matrices.cols, layout.pitch,
        layout.stride,         count,         symmetric};
    Launch(stream, {.blocks = BlocksFor(count), .threads = kThreads}, PatternKernel<dtype>,
           arguments);
  });
}

void CompareMatrices(Stream& stream, const CheckedMatrices& matrices, const void* x, const void* y,
                     float floor, uint32_t* largest_bits) {
  constexpr int64_t kMostBlocks = 1024;
  const BatchLayout layout = LayoutOf(matrices.dtype, matrices.rows, matrices.cols);
  const int64_t count = matrices.batch * matrices.rows * matrices.cols;
  const int64_t blocks = BlocksFor(count) < kMostBlocks ? BlocksFor(count) : kMostBlocks;
  ForDType(matrices.dtype, [&]<NsDType dtype>() {
    using Bits = typename StoredElement<dtype>::Bits;
    const CompareArguments<Bits> arguments = {static_cast<const Bits*>(x),
                                              static_cast<const Bits*>(y),
                                              matrices.rows,
                                              matrices.cols,
                                              layout.pitch,
                                              layout.stride,
                                              count,
                                              floor,
                                              largest_bits};
    Launch(stream, {.blocks = blocks, .threads = kThreads}, CompareKernel<dtype>, arguments);
  });
}

}  // namespace kaon::kernels::cuda
