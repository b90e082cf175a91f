// One stream with the scratch of products, and batches of matrices in device memory. The device
// sections share them. The creator owns them, and the device outlives them. One thread at a time.
#ifndef KAON_TESTS_GPU_DEVICE_MATRICES_H_
#define KAON_TESTS_GPU_DEVICE_MATRICES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/owned_memory.h"
#include "kernels/cuda/products/products.h"
#include "kernels/dtype.h"

namespace kaon::gpu_check {

// A stream, and the products on it.
class DeviceStream {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceStream>> Create(kernels::cuda::Device& device);

  kernels::cuda::Device& device() { return device_; }
  kernels::cuda::Stream& stream() { return *stream_; }
  kernels::cuda::Products& products() { return *products_; }
  kernels::cuda::ProductStream on() { return {*stream_, scratch_.data()}; }

  // Copy between host and device, and wait.
  void Upload(const std::vector<std::byte>& bytes, void* to);
  std::vector<std::byte> Download(const void* from, uint64_t bytes);

  // Returns the median of the seconds that the device takes for what `queue` queues. `queue` gets
  // the number of the call, from 0; 20 calls are queued before each wait.
  double MedianSeconds(bool small, const std::function<void(int call)>& queue);

 private:
  explicit DeviceStream(kernels::cuda::Device& device) : device_(device) {}

  kernels::cuda::Device& device_;
  std::unique_ptr<kernels::cuda::Stream> stream_;
  std::unique_ptr<kernels::cuda::Products> products_;
  kernels::cuda::OwnedMemory scratch_;
};

// A batch of equal matrices, laid out by LayoutOf.
class DeviceMatrices {
 public:
  struct Shape {
    kernels::NsDType dtype = kernels::NsDType::kBFloat16;
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t batch = 1;
  };
  // The contents are undefined. RESOURCE_EXHAUSTED with the arithmetic.
  static absl::StatusOr<DeviceMatrices> Create(DeviceStream& stream, const Shape& shape);

  void* data() const { return memory_.data(); }
  kernels::cuda::BatchLayout layout() const {
    return kernels::cuda::LayoutOf(shape_.dtype, shape_.rows, shape_.cols);
  }
  // Returns the elements of all matrices, row by row.
  int64_t num_elements() const { return shape_.batch * shape_.rows * shape_.cols; }

  // Stores rounded values, row by row; the padding is NaN.
  void Fill(DeviceStream& stream, const std::vector<float>& values);
  // Fills with numbers in [-scale, scale) that repeat after some rows.
  void FillRepeated(DeviceStream& stream, uint64_t seed, float scale);
  std::vector<float> Read(DeviceStream& stream) const;

 private:
  kernels::cuda::OwnedMemory memory_;
  Shape shape_;
};

kernels::DType StoredAs(kernels::NsDType dtype);

}  // namespace kaon::gpu_check

#endif  // KAON_TESTS_GPU_DEVICE_MATRICES_H_
