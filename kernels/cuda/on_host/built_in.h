// The built-in variables, functions and qualifiers of CUDA C++ that kernels use, over the fibers of
// block.h. Called by the body of a kernel only.
#ifndef KAON_KERNELS_CUDA_ON_HOST_BUILT_IN_H_
#define KAON_KERNELS_CUDA_ON_HOST_BUILT_IN_H_

#include "kernels/cuda/on_host/block.h"

#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
#define threadIdx (::kaon::kernels::cuda::on_host::Block::Current().thread())
#define blockIdx (::kaon::kernels::cuda::on_host::Block::Current().block())
#define blockDim (::kaon::kernels::cuda::on_host::Block::Current().dim())
#define gridDim (::kaon::kernels::cuda::on_host::Block::Current().grid())
#define KAON_TEXT_OF(x) #x
#define KAON_PLACE_OF(line) __FILE__ ":" KAON_TEXT_OF(line)
#define __syncthreads() \
  ::kaon::kernels::cuda::on_host::Block::Current().Barrier(KAON_PLACE_OF(__LINE__))

inline void __syncwarp() { ::kaon::kernels::cuda::on_host::Block::Current().SyncWarp(); }

// Lanes past the end of the warp get their own value.
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int from = lane + static_cast<int>(delta);
  return ::kaon::kernels::cuda::on_host::ShuffleAs(value, from < 32 ? from : lane);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return ::kaon::kernels::cuda::on_host::ShuffleAs(value,
                                                   static_cast<int>(threadIdx.x % 32) ^ mask);
}
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return ::kaon::kernels::cuda::on_host::ShuffleAs(value, from);
}
// Relaxed, as on the device.
template <typename T>
T atomicAdd(T* to, T value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <typename T>
T atomicMax(T* to, T value) {
  T old = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (old < value &&
         !__atomic_compare_exchange_n(to, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

#endif  // KAON_KERNELS_CUDA_ON_HOST_BUILT_IN_H_
