// Launch, SharedMemory and the built-in names of CUDA C++. With them a kernel's source compiles
// with nvcc and, over on_host/block.h, with g++. Kernels contain no inline PTX (instructions.h has
// it) and no <<<>>>. Called by kernels, or on the thread of a stream.
#ifndef KAON_KERNELS_CUDA_LAUNCH_H_
#define KAON_KERNELS_CUDA_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/device.h"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#include <glog/logging.h>
#else
#include "kernels/cuda/on_host/built_in.h"
#include "kernels/cuda/on_host/host_stream.h"
#endif

namespace kaon::kernels::cuda {

struct LaunchShape {
  int64_t blocks = 1;
  int threads = 128;
  // Shared memory of DynamicSharedMemory.
  uint32_t dynamic_shared_bytes = 0;
};

#if defined(__CUDACC__)

#define KAON_DEVICE __device__ __forceinline__
// Opens the definition of a constant in device memory.
#define KAON_DEVICE_CONSTANT static __device__ const
#define KAON_UNROLL _Pragma("unroll")

// The block's shared memory as a T, at most 48 KiB; contents are undefined. One T per kernel.
template <typename T>
KAON_DEVICE T& SharedMemory() {
  __shared__ alignas(16) unsigned char memory[sizeof(T)];
  return reinterpret_cast<T&>(memory);
}

// The block's dynamic shared memory, aligned to 1024 bytes.
KAON_DEVICE unsigned char* DynamicSharedMemory() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return memory;
}

// Queues kernel(args...) on the stream; zero blocks do nothing.
template <typename... Params, typename... Args>
void Launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Params...), Args&&... args) {
  if (shape.blocks == 0) return;
  const auto launch = [&](Params... values) {
    // First: it makes the stream's device the current one.
    const auto native = static_cast<cudaStream_t>(stream.native());
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&values))...};
    if (shape.dynamic_shared_bytes > 48 * 1024) {
      const cudaError_t set = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shape.dynamic_shared_bytes));
      CHECK(set == cudaSuccess) << "cudaFuncSetAttribute: " << cudaGetErrorString(set);
    }
    const cudaError_t launched = cudaLaunchKernel(
        reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(shape.blocks)),
        dim3(static_cast<unsigned>(shape.threads)), pointers, shape.dynamic_shared_bytes, native);
    CHECK(launched == cudaSuccess) << "cudaLaunchKernel: " << cudaGetErrorString(launched);
  };
  launch(static_cast<Params>(args)...);
}

#else

#define KAON_DEVICE inline
#define KAON_DEVICE_CONSTANT static constexpr
#define KAON_UNROLL

template <typename T>
T& SharedMemory() {
  static_assert(sizeof(T) <= 48 * 1024, "static shared memory of a block");
  return *reinterpret_cast<T*>(on_host::Block::Current().shared(sizeof(T)));
}

inline unsigned char* DynamicSharedMemory() { return on_host::Block::Current().dynamic_shared(); }

template <typename... Params, typename... Args>
void Launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Params...), Args&&... args) {
  if (shape.blocks == 0) return;
  // Arguments are copied at once, as by cudaLaunchKernel.
  on_host::Enqueue(stream, [shape, kernel, values = std::tuple<Params...>(args...)](uint64_t seed) {
    on_host::RunGrid(seed, shape.blocks, shape.threads, shape.dynamic_shared_bytes,
                     [&] { std::apply(kernel, values); });
  });
}

#endif

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_LAUNCH_H_
