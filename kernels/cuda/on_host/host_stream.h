// The seam between Launch and the streams of device_on_host.cc. Any thread.
#ifndef KAON_KERNELS_CUDA_ON_HOST_HOST_STREAM_H_
#define KAON_KERNELS_CUDA_ON_HOST_HOST_STREAM_H_

#include <cstdint>
#include <functional>

#include "kernels/cuda/device.h"

namespace kaon::kernels::cuda::on_host {

// Appends `work` to the stream, which calls it later with a seed for the order of threads.
void Enqueue(Stream& stream, std::function<void(uint64_t seed)> work);

}  // namespace kaon::kernels::cuda::on_host

#endif  // KAON_KERNELS_CUDA_ON_HOST_HOST_STREAM_H_
