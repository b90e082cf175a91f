// Four neighbouring elements per thread, the unit of all element-wise kernels, and sums over a
// warp. Device code; the threads of one block.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_FOUR_H_
#define KAON_KERNELS_CUDA_ELEMENTS_FOUR_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/dtype.h"
#include "kernels/float_bits.h"
#include "kernels/reduce/fold_element.h"

namespace kaon::kernels::cuda {

// Threads of a block, and the elements that they step in one turn: a block of the digest.
inline constexpr int kThreads = 128;
inline constexpr int64_t kTurn = 4 * kThreads;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

// Limit on the blocks of a grid that loops over turns. They are several waves on any device, so
// that the last wave costs little. Each adds to the facts once, so few are better.
inline constexpr int64_t kMostBlocks = 16384;

inline int64_t BlocksFor(int64_t num_elements) {
  const int64_t turns = (num_elements + kTurn - 1) / kTurn;
  return turns < kMostBlocks ? turns : kMostBlocks;
}

// Returns true if vectors of 16 bytes may be read and written there.
KAON_HOST_DEVICE bool IsVectorAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T of[4];
};

// Returns how many of the four elements from `first` on are below `n`.
KAON_DEVICE int NumOfFour(int64_t first, int64_t n) {
  const int64_t left = n - first - (Has(SeededBug::kTailOffByOne) && n % 4 != 0 ? 1 : 0);
  return left >= 4 ? 4 : (left > 0 ? static_cast<int>(left) : 0);
}

// Reads `count` elements; the others are 0. `vector`: the address is aligned for all four.
template <typename T>
KAON_DEVICE Four<T> LoadFour(const T* from, int count, bool vector) {
  if (vector && count == 4) return *reinterpret_cast<const Four<T>*>(from);
  Four<T> x = {};
  for (int i = 0; i < 4; ++i) {
    if (i < count) x.of[i] = from[i];
  }
  return x;
}

template <typename T>
KAON_DEVICE void StoreFour(const Four<T>& x, T* to, int count, bool vector) {
  if (vector && count == 4) {
    *reinterpret_cast<Four<T>*>(to) = x;
    return;
  }
  for (int i = 0; i < 4; ++i) {
    if (i < count) to[i] = x.of[i];
  }
}

// Reads elements of `dtype` from `first` on as fp32. The array is aligned for its elements.
KAON_DEVICE Four<float> LoadFourAs(DType dtype, const void* array, int64_t first, int count,
                                   bool vector) {
  if (dtype == DType::kFloat32) {
    return LoadFour(static_cast<const float*>(array) + first, count, vector);
  }
  const Four<uint16_t> narrow =
      LoadFour(static_cast<const uint16_t*>(array) + first, count, vector);
  Four<float> wide;
  for (int i = 0; i < 4; ++i) {
    wide.of[i] =
        dtype == DType::kBFloat16 ? BFloat16ToFloat(narrow.of[i]) : Float16ToFloat(narrow.of[i]);
  }
  return wide;
}

KAON_DEVICE int LaneOfWarp() { return static_cast<int>(threadIdx.x % 32); }

// One value per warp of a block, in shared memory. Each reduction needs its own.
template <typename T>
struct OfWarps {
  T of[kThreads / 32];
};

// Adds the values of each warp in a fixed order. All threads call it.
template <typename T>
KAON_DEVICE void AddInWarps(T value, OfWarps<T>& warps) {
  for (unsigned delta = 16; delta > 0; delta /= 2) {
    value += __shfl_down_sync(kWholeWarp, value, delta);
  }
  if (LaneOfWarp() == 0) warps.of[threadIdx.x / 32] = value;
}

// Returns the sum over the warps. The block needs a barrier after AddInWarps.
template <typename T>
KAON_DEVICE T SumOfWarps(const OfWarps<T>& warps) {
  T sum = 0;
  for (int i = Has(SeededBug::kFactsOfWarpLost) ? 1 : 0; i < kThreads / 32; ++i) {
    sum += warps.of[i];
  }
  return sum;
}

// Returns the sum of the threads' values. All threads call it.
template <typename T>
KAON_DEVICE T SumOfBlock(T value, OfWarps<T>& warps) {
  AddInWarps(value, warps);
  __syncthreads();
  return SumOfWarps(warps);
}

// Same for the largest value.
KAON_DEVICE void RaiseInWarps(uint32_t value, OfWarps<uint32_t>& warps) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t other = __shfl_xor_sync(kWholeWarp, value, mask);
    value = other > value ? other : value;
  }
  if (LaneOfWarp() == 0) warps.of[threadIdx.x / 32] = value;
}

KAON_DEVICE uint32_t LargestOfWarps(const OfWarps<uint32_t>& warps) {
  uint32_t largest = 0;
  for (const uint32_t value : warps.of) largest = value > largest ? value : largest;
  return largest;
}

KAON_DEVICE void AtomicAdd(uint64_t* to, uint64_t value) {
  if (value == 0) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

// Adds the threads' values to `*to`, once per block: additions to one address are serialized.
KAON_DEVICE void AddOfBlock(uint64_t value, OfWarps<uint64_t>& warps, uint64_t* to) {
  const uint64_t sum = SumOfBlock(value, warps);
  if (threadIdx.x == 0) AtomicAdd(to, sum);
}

KAON_DEVICE void RaiseByBlock(uint32_t value, OfWarps<uint32_t>& warps, uint32_t* to) {
  RaiseInWarps(value, warps);
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(to, LargestOfWarps(warps));
}

// Adds values in shared memory to `sum` one after the other. `count` is a multiple of
// kSumAhead: zeros may follow the last value, since they change no sum of squares. Loads run ahead
// of the additions.
inline constexpr int kSumAhead = 16;

KAON_DEVICE double SumInOrder(double sum, const double* values, int count) {
  for (int at = 0; at < count; at += kSumAhead) {
    double x[kSumAhead];
    KAON_UNROLL
    for (int i = 0; i < kSumAhead; ++i) x[i] = values[at + i];
    KAON_UNROLL
    for (int i = 0; i < kSumAhead; ++i) sum += x[i];
  }
  return sum;
}

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_FOUR_H_
