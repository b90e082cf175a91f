// Twins of the instructions of instructions.h, from the PTX documentation. Tensor copies run late,
// in any order. Products run when they are issued or when they are awaited, as the seed has it. A
// wait for products orders one warp only, since nothing says more. Called by kernels only.
#ifndef KAON_KERNELS_CUDA_ON_HOST_INSTRUCTIONS_ON_HOST_H_
#define KAON_KERNELS_CUDA_ON_HOST_INSTRUCTIONS_ON_HOST_H_

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/tensor_map.h"
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
// Names a phase for ThreadSanitizer.
inline const void* TokenOf(const void* barrier, uint32_t phase) {
  return static_cast<const char*>(barrier) + phase * 4;
}

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
  uint64_t a, b;
  bool add;
  DType dtype;
  int group;
};

// Products of one thread that are not done, in order. Zero at the start.
struct Products {
  static constexpr int kMost = 16;
  Product waiting[kMost];
  int num_waiting, groups;  // groups committed so far
  bool fenced;
};
static_assert(sizeof(Products) <= Block::kScratchBytes);

inline Products& ProductsOfThread() { return *static_cast<Products*>(Block::Current().scratch()); }

// Reads 16 elements of a row as the tensor cores do.
inline void ReadOperand(uint64_t descriptor, int row, DType dtype, float (&to)[16]) {
  CHECK_EQ(descriptor >> 62, 1u) << "the twin knows the 128-byte swizzle alone";
  const uint64_t start = (descriptor & 0x3fff) << 4;
  const uint64_t group_bytes = ((descriptor >> 32) & 0x3fff) << 4;
  const auto r = static_cast<uint64_t>(row);
  const auto at = static_cast<uint32_t>(start + r / 8 * group_bytes + r % 8 * kBoxRowBytes);
  uint16_t values[16];
  for (uint32_t chunk = 0; chunk < 2; ++chunk) {
    std::memcpy(&values[chunk * 8], DynamicSharedMemory() + Swizzled(at + chunk * 16), 16);
  }
  for (int i = 0; i < 16; ++i) {
    to[i] = dtype == DType::kBFloat16 ? BFloat16ToFloat(values[i]) : Float16ToFloat(values[i]);
  }
}

// The share of one thread. Sums are added one k after the other.
inline void Run(const Product& product) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
  float upper[16];
  float lower[16];
  ReadOperand(product.a, row, product.dtype, upper);
  ReadOperand(product.a, row + 8, product.dtype, lower);
  for (int i = 0; i < 64; ++i) {
    float values[16];
    ReadOperand(product.b, i / 2 * 8 + lane % 4 * 2 + i % 2, product.dtype, values);
    float* const d = product.d + i / 2 * 4 + i % 2;
    float upper_sum = product.add ? d[0] : 0;
    float lower_sum = product.add ? d[2] : 0;
    for (int k = 0; k < 16; ++k) {
      upper_sum += upper[k] * values[k];
      lower_sum += lower[k] * values[k];
    }
    d[0] = upper_sum;
    d[2] = lower_sum;
  }
}

// Runs all products but those of the last `left` groups.
inline void RunProducts(Products& own, int left) {
  int done = 0;
  while (done < own.num_waiting && own.waiting[done].group < own.groups - left) {
    Run(own.waiting[done++]);
  }
  own.num_waiting -= done;
  std::copy_n(&own.waiting[done], own.num_waiting, own.waiting);
}

inline void CopyBox(const TensorMap& map, uint32_t to, int x, int y, int z) {
  const MatrixBatch& m = map.matrices;
  for (int row = 0; row < map.box_rows; ++row) {
    uint16_t values[kBoxCols] = {};
    const int64_t cols = std::min<int64_t>(kBoxCols, m.cols - x);
    const int64_t from = z * m.stride + (int64_t{y} + row) * m.pitch + x;
    if (y + row < m.rows && z < m.batch && cols > 0) {
      std::copy_n(static_cast<const uint16_t*>(m.data) + from, cols, values);
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
  const uint32_t arrivals = static_cast<uint32_t>(count) & 0x7fff;
  *reinterpret_cast<on_host::Mbarrier*>(barrier) = {0, arrivals, arrivals, 0};
}

KAON_UNSEEN inline void ArriveExpecting(uint64_t* barrier, uint32_t bytes) {
  on_host::Mbarrier& state = *reinterpret_cast<on_host::Mbarrier*>(barrier);
  on_host::Block::Release(on_host::TokenOf(barrier, state.phase));
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
  on_host::Block::Acquire(on_host::TokenOf(barrier, parity));
}

inline void FenceBarriers() {}
inline void PrefetchMap(const TensorMap&) {}
KAON_UNSEEN inline void LoadBox(void* to, const TensorMap& map, uint64_t* barrier, int x, int y,
                                int z) {
  CHECK_EQ(SharedAddress(to) % 128, 0u) << "a box lands on a boundary of 128 bytes";
  on_host::Block::Release(to);
  on_host::Block::Current().Defer([=] {
    on_host::Block::Acquire(to);
    on_host::CopyBox(map, SharedAddress(to), x, y, z);
    on_host::Mbarrier& state = *reinterpret_cast<on_host::Mbarrier*>(barrier);
    on_host::Block::Release(on_host::TokenOf(barrier, state.phase));
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
  CHECK_LT(own.num_waiting, on_host::Products::kMost) << "products that nothing waits for";
  own.waiting[own.num_waiting++] = {d, a, b, add, dtype, own.groups};
  if (on_host::Block::Current().Draw() % 2 == 0) on_host::RunProducts(own, -1);
}

template <int registers>
void ShrinkRegisters() {}
template <int registers>
void GrowRegisters() {}

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ON_HOST_INSTRUCTIONS_ON_HOST_H_
