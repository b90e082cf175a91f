// Marks the small functions that the CPU kernels inline into their vector loops and that a CUDA
// kernel can call as they stand: one definition of each rule's arithmetic for every device. A macro
// only; no state, any thread.
#ifndef KAON_KERNELS_HOST_DEVICE_H_
#define KAON_KERNELS_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define KAON_HOST_DEVICE __host__ __device__ __forceinline__
#else
// Always inlined: a function left out of line would be compiled for plain x86-64 and called once
// per element.
#define KAON_HOST_DEVICE inline __attribute__((always_inline))
#endif

#endif  // KAON_KERNELS_HOST_DEVICE_H_
