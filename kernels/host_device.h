// Marks small functions that CPU kernels inline into their vector loops and that a CUDA kernel can
// call unchanged. So each rule's arithmetic is defined once for every device. A macro only; no
// state, any thread.
#ifndef KAON_KERNELS_HOST_DEVICE_H_
#define KAON_KERNELS_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define KAON_HOST_DEVICE __host__ __device__ __forceinline__
#else
// Always inlined: otherwise the function is compiled for plain x86-64 and called once per element.
#define KAON_HOST_DEVICE inline __attribute__((always_inline))
#endif

#endif  // KAON_KERNELS_HOST_DEVICE_H_
