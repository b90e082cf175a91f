#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/block_addresses.h"
#include "kernels/cuda/seeded_bug.h"

namespace kaon::kernels::cuda {
namespace {

constexpr int kThreads = 128;

struct AddressArguments {
  BlockTriangle triangle;
  void** addresses;
};

KAON_DEVICE void* Element(const void* base, int64_t index) {
  return const_cast<uint16_t*>(static_cast<const uint16_t*>(base) + index);
}

__global__ void AddressKernel(AddressArguments args) {
  const BlockTriangle& t = args.triangle;
  const int64_t per_matrix = t.side * (t.side + 1) / 2;
  const int64_t count = t.batch * per_matrix;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t matrix = i / per_matrix;
  int64_t col = i % per_matrix;
  int64_t row = 0;
  while (col > row) {
    ++row;
    col -= row;
  }
  const int64_t a = matrix * (Has(SeededBug::kWrongBatchStride) ? t.d.stride : t.a.stride);
  const int64_t d = matrix * t.d.stride + row * t.edge * t.d.pitch + col * t.edge;
  args.addresses[i] = Element(t.operands.a, a + row * t.edge * t.a.pitch);
  args.addresses[count + i] = Element(t.operands.b, a + col * t.edge * t.a.pitch);
  args.addresses[2 * count + i] = Element(t.operands.c, d);
  args.addresses[3 * count + i] = Element(t.operands.d, d);
}

}  // namespace

void FillBlockAddresses(Stream& stream, const BlockTriangle& triangle, void** addresses) {
  const int64_t blocks = (triangle.NumBlocks() + kThreads - 1) / kThreads;
  Launch(stream, {.blocks = blocks, .threads = kThreads}, AddressKernel,
         AddressArguments{triangle, addresses});
}

}  // namespace kaon::kernels::cuda
