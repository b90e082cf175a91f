// A Device whose memory is host memory, to find the mistakes that a GPU hides. The work of a stream
// runs late: only once somebody waits, in an order across streams that a seed chooses among the
// legal ones. Fresh device memory, and the target of a copy that is not done, hold NaN patterns.
// A copy outside an allocation, a write outside one, a double free, and a free of memory that a
// copy still needs end the process. The caller owns a Device. Any thread.
#ifndef KAON_KERNELS_CUDA_ON_HOST_DEVICE_ON_HOST_H_
#define KAON_KERNELS_CUDA_ON_HOST_DEVICE_ON_HOST_H_

#include <cstdint>
#include <memory>

#include "kernels/cuda/device.h"

namespace kaon::kernels::cuda::on_host {

struct DeviceOnHostOptions {
  // Chooses the order of work across streams, and that of threads inside kernels.
  uint64_t seed = 1;
  // Bytes that can be allocated, of the device and page-locked.
  uint64_t memory_bytes = uint64_t{8} << 30;
  uint64_t pinned_bytes = uint64_t{8} << 30;
  int multiprocessors = 132;
};

std::unique_ptr<Device> NewDeviceOnHost(const DeviceOnHostOptions& options);

// Number of devices that Device::Open finds. It reads the environment: KAON_CUDA_ON_HOST_SEED, and
// KAON_CUDA_ON_HOST_MEMORY for the bytes of device memory.
inline constexpr int kDevicesOnHost = 8;

}  // namespace kaon::kernels::cuda::on_host

#endif  // KAON_KERNELS_CUDA_ON_HOST_DEVICE_ON_HOST_H_
