// A device on the host with one stream, the scratch of products, and copies of test data. Used by
// tests only; one thread.
#ifndef KAON_TESTS_KERNELS_CUDA_TEST_DEVICE_H_
#define KAON_TESTS_KERNELS_CUDA_TEST_DEVICE_H_

#include <glog/logging.h>

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/on_host/device_on_host.h"
#include "kernels/cuda/owned_memory.h"
#include "kernels/cuda/products/products.h"
#include "kernels/dtype.h"

namespace kaon::kernels::cuda {

class TestDevice {
 public:
  explicit TestDevice(uint64_t seed = 1)
      : device_(on_host::NewDeviceOnHost({.seed = seed})), stream_(device_->NewStream()) {
    auto products = Products::Create(*device_);
    CHECK(products.ok()) << products.status();
    products_ = *std::move(products);
  }

  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  Products& products() { return *products_; }
  ProductStream on() {
    if (scratch_.size() == 0) scratch_ = Memory(ProductStream::kScratchBytes);
    return {*stream_, scratch_.data()};
  }

  OwnedMemory Memory(uint64_t bytes) {
    auto memory = OwnedMemory::OnDevice(*device_, bytes);
    CHECK(memory.ok()) << memory.status();
    return *std::move(memory);
  }

  template <typename T>
  void Upload(const std::vector<T>& values, void* to) {
    OwnedMemory pinned = Pinned(values.size() * sizeof(T));
    memcpy(pinned.data(), values.data(), pinned.size());
    stream_->CopyIn(pinned.data(), to, pinned.size());
    stream_->Synchronize();
  }
  template <typename T>
  std::vector<T> Download(const void* from, int64_t count) {
    std::vector<T> values(count);
    OwnedMemory pinned = Pinned(count * sizeof(T));
    stream_->CopyOut(from, pinned.data(), pinned.size());
    stream_->Synchronize();
    memcpy(values.data(), pinned.data(), pinned.size());
    return values;
  }

  // Copies batches of row-major fp32 matrices to and from the layout of LayoutOf, rounded to
  // `dtype`.
  void UploadMatrices(NsDType dtype, int64_t rows, int64_t cols,
                      const std::vector<std::vector<float>>& matrices, void* to) {
    const BatchLayout layout = LayoutOf(dtype, rows, cols);
    std::vector<std::byte> stored(matrices.size() * layout.stride * ElementBytes(dtype),
                                  std::byte{0xff});
    for (size_t m = 0; m < matrices.size(); ++m) {
      for (int64_t i = 0; i < rows; ++i) {
        std::byte* const row =
            stored.data() + (m * layout.stride + i * layout.pitch) * ElementBytes(dtype);
        FromFloat(WireType(dtype), {matrices[m].data() + i * cols, static_cast<size_t>(cols)}, row);
      }
    }
    Upload(stored, to);
  }
  std::vector<std::vector<float>> DownloadMatrices(NsDType dtype, int64_t rows, int64_t cols,
                                                   int64_t batch, const void* from) {
    const BatchLayout layout = LayoutOf(dtype, rows, cols);
    const auto stored = Download<std::byte>(from, batch * layout.stride * ElementBytes(dtype));
    std::vector<std::vector<float>> matrices(batch, std::vector<float>(rows * cols));
    for (int64_t m = 0; m < batch; ++m) {
      for (int64_t i = 0; i < rows; ++i) {
        const std::byte* const row =
            stored.data() + (m * layout.stride + i * layout.pitch) * ElementBytes(dtype);
        ToFloat(WireType(dtype), row, {matrices[m].data() + i * cols, static_cast<size_t>(cols)});
      }
    }
    return matrices;
  }

 private:
  static DType WireType(NsDType dtype) {
    const DType types[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
    return types[static_cast<int>(dtype)];
  }
  OwnedMemory Pinned(uint64_t bytes) {
    auto memory = OwnedMemory::Pinned(*device_, bytes);
    CHECK(memory.ok()) << memory.status();
    return *std::move(memory);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  OwnedMemory scratch_;
  std::unique_ptr<Products> products_;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_TESTS_KERNELS_CUDA_TEST_DEVICE_H_
