// Twins of the instructions of instructions.h, from the PTX documentation. Tensor copies run late
// and in any order. Products run when they are issued or when they are awaited, as the seed has it.
// A twin is stricter where the documentation is silent: a wait for products orders the lanes of one
// warp only. Called by kernels only, on the thread that runs their block.
#ifndef KAON_KERNELS_CUDA_ON_HOST_INSTRUCTIONS_ON_HOST_H_
#define KAON_KERNELS_CUDA_ON_HOST_INSTRUCTIONS_ON_HOST_H_

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/dtype.h"
#include "kernels/float_bits.h"

namespace kaon::kernels::cuda {
namespace on_host {

struct Mbarrier {
  uint32_t phase : 1;
  uint32_t pending : 15;
  uint32_t count : 16;
  int32_t bytes;
};
static_assert(sizeof(Mbarrier) == sizeof(uint64_t));

KAON_UNSEEN inline void EndPhaseIfComplete(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.phase ^= 1;
  barrier.pending = barrier.count;
  Block::Current().Wake();
}

// The address bits 4 - 6 are changed by bits 7 - 9.
inline uint32_t Swizzled(uint32_t address) { return address ^ (((address >> 7) & 7) << 4); }

struct Product {
  float* d;
  uint64_t a;
  uint64_t b;
  bool add;
  DType dtype;
  int thread;
  int group;
};

// Products of one thread.
struct Products {
  // The Block::run() that they belong to.
  uint64_t run = 0;
  std::vector<Product> waiting;
  int groups = 0;
  bool fenced = false;
};

inline Products& ProductsOfThread() {
  static thread_local std::array<Products, Block::kMostThreads> products;
  Products& own = products[threadIdx.x];
  if (own.run != Block::Current().run()) {
    own = Products();
    own.run = Block::Current().run();
  }
  return own;
}

// Reads 16 elements of a row as the tensor cores do.
inline void ReadOperand(uint64_t descriptor, int row, DType dtype, float (&to)[16]) {
  const uint32_t start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
  const uint32_t group_bytes = static_cast<uint32_t>((descriptor >> 32) & 0x3fff) << 4;
  CHECK_EQ(descriptor >> 62, 1u) << "the twin knows the 128-byte swizzle alone";
  const uint32_t at =
      start + static_cast<uint32_t>(row / 8) * group_bytes + static_cast<uint32_t>(row % 8) * 128;
  uint16_t values[16];
  for (uint32_t chunk = 0; chunk < 2; ++chunk) {
    std::memcpy(&values[chunk * 8], DynamicSharedMemory() + Swizzled(at + chunk * 16), 16);
  }
  if (dtype == DType::kBFloat16) {
    for (int i = 0; i < 16; ++i) to[i] = BFloat16ToFloat(values[i]);
  } else {
    for (int i = 0; i < 16; ++i) to[i] = Float16ToFloat(values[i]);
  }
}

// The share of one thread. Sums are added one k after the other.
inline void Run(const Product& product) {
  const int lane = product.thread % 32;
  const int row = product.thread / 32 * 16 + lane / 4;
  float upper[16];
  float lower[16];
  ReadOperand(product.a, row, product.dtype, upper);
  ReadOperand(product.a, row + 8, product.dtype, lower);
  for (int i = 0; i < 64; ++i) {
    float values[16];
    ReadOperand(product.b, i / 2 * 8 + lane % 4 * 2 + i % 2, product.dtype, values);
    float& upper_sum = product.d[i / 2 * 4 + i % 2];
    float& lower_sum = product.d[i / 2 * 4 + 2 + i % 2];
    float sums[2] = {product.add ? upper_sum : 0.0f, product.add ? lower_sum : 0.0f};
    for (int k = 0; k < 16; ++k) {
      sums[0] += upper[k] * values[k];
      sums[1] += lower[k] * values[k];
    }
    upper_sum = sums[0];
    lower_sum = sums[1];
  }
}

// Runs all products but those of the last `left` groups.
inline void RunProducts(Products& own, int left) {
  const auto end =
      std::find_if(own.waiting.begin(), own.waiting.end(),
                   [&](const Product& product) { return product.group >= own.groups - left; });
  for (auto product = own.waiting.begin(); product != end; ++product) Run(*product);
  own.waiting.erase(own.waiting.begin(), end);
}

inline void CopyBox(const TensorMap& map, uint32_t to, int x, int y, int z) {
  const MatrixBatch& m = map.matrices;
  for (int row = 0; row < map.box_rows; ++row) {
    uint16_t values[kBoxCols] = {};
    const int64_t cols = std::min<int64_t>(kBoxCols, m.cols - x);
    if (y + row < m.rows && z < m.batch && cols > 0) {
      std::memcpy(values,
                  static_cast<const uint16_t*>(m.data) + z * m.stride +
                      static_cast<int64_t>(y + row) * m.pitch + x,
                  static_cast<size_t>(cols) * 2);
    }
    for (uint32_t chunk = 0; chunk < kBoxRowBytes / 16; ++chunk) {
      const uint32_t at = to + static_cast<uint32_t>(row) * kBoxRowBytes + chunk * 16;
      std::memcpy(DynamicSharedMemory() + Swizzled(at), &values[chunk * 8], 16);
    }
  }
}

}  // namespace on_host

KAON_UNSEEN inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(p) - DynamicSharedMemory());
}

KAON_UNSEEN inline void InitBarrier(uint64_t* barrier, int count) {
  const auto arrivals = static_cast<uint32_t>(count);
  *reinterpret_cast<on_host::Mbarrier*>(barrier) = {0, arrivals & 0x7fff, arrivals & 0xffff, 0};
}

inline void FenceBarriers() {}

KAON_UNSEEN inline void ArriveExpecting(uint64_t* barrier, uint32_t bytes) {
  on_host::Mbarrier& state = *reinterpret_cast<on_host::Mbarrier*>(barrier);
  on_host::Block::Release(barrier);
  CHECK_GT(state.pending, 0u) << "one arrival too many";
  state.bytes += static_cast<int32_t>(bytes);
  --state.pending;
  on_host::EndPhaseIfComplete(state);
}

inline void Arrive(uint64_t* barrier) { ArriveExpecting(barrier, 0); }

KAON_UNSEEN inline void AwaitPhase(uint64_t* barrier, uint32_t parity) {
  while (reinterpret_cast<on_host::Mbarrier*>(barrier)->phase == parity) {
    on_host::Block::Current().Poll();
  }
  on_host::Block::Acquire(barrier);
}

inline void PrefetchMap(const TensorMap&) {}

KAON_UNSEEN inline void LoadBox(void* to, const TensorMap& map, uint64_t* barrier, int x, int y,
                                int z) {
  CHECK_EQ(SharedAddress(to) % 128, 0u) << "a box lands on a boundary of 128 bytes";
  CHECK(x >= 0 && y >= 0 && z >= 0) << x << " " << y << " " << z;
  on_host::Block::Release(to);
  on_host::Block::Current().Defer([=] {
    on_host::Block::Acquire(to);
    on_host::CopyBox(map, SharedAddress(to), x, y, z);
    on_host::Block::Release(barrier);
    on_host::Mbarrier& state = *reinterpret_cast<on_host::Mbarrier*>(barrier);
    state.bytes -= map.box_rows * kBoxRowBytes;
    on_host::EndPhaseIfComplete(state);
  });
}

inline void FenceProducts() { on_host::ProductsOfThread().fenced = true; }

inline void CommitProducts() { ++on_host::ProductsOfThread().groups; }

template <int left>
void AwaitProducts() {
  on_host::RunProducts(on_host::ProductsOfThread(), left);
  __syncwarp();
}

inline void AwaitSums(float (&)[128]) {
  AwaitProducts<0>();
  on_host::ProductsOfThread().fenced = false;
}

template <DType dtype>
void Multiply(float (&d)[128], uint64_t a, uint64_t b, bool add) {
  on_host::Products& own = on_host::ProductsOfThread();
  CHECK(own.fenced) << "products without a fence after the sums were read";
  const int thread = static_cast<int>(threadIdx.x) % 128;
  own.waiting.push_back({d, a, b, add, dtype, thread, own.groups});
  if (on_host::Block::Current().Draw() % 2 == 0) on_host::RunProducts(own, -1);
}

template <int registers>
void ShrinkRegisters() {}
template <int registers>
void GrowRegisters() {}

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ON_HOST_INSTRUCTIONS_ON_HOST_H_
