#include "tests/gpu/device_matrices.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "kernels/dtype.h"
#include "kernels/steady_clock.h"
#include "tests/gpu/device_numbers.h"

namespace kaon::gpu_check {
namespace {

using kernels::DType;
using kernels::cuda::OwnedMemory;

constexpr int kCallsPerWait = 20;
constexpr int kWaits = 7;

}  // namespace

DType StoredAs(kernels::NsDType dtype) {
  switch (dtype) {
    case kernels::NsDType::kFloat32:
      return DType::kFloat32;
    case kernels::NsDType::kBFloat16:
      return DType::kBFloat16;
    case kernels::NsDType::kFloat16:
      break;
  }
  return DType::kFloat16;
}

absl::StatusOr<std::unique_ptr<DeviceStream>> DeviceStream::Create(kernels::cuda::Device& device) {
  auto stream = absl::WrapUnique(new DeviceStream(device));
  stream->stream_ = device.NewStream();
  auto products = kernels::cuda::Products::Create(device);
  if (!products.ok()) return products.status();
  stream->products_ = *std::move(products);
  auto scratch = OwnedMemory::OnDevice(device, kernels::cuda::ProductStream::kScratchBytes);
  if (!scratch.ok()) return scratch.status();
  stream->scratch_ = *std::move(scratch);
  return stream;
}

void DeviceStream::Upload(const std::vector<std::byte>& bytes, void* to) {
  auto pinned = OwnedMemory::Pinned(device_, bytes.size());
  CHECK(pinned.ok()) << pinned.status();
  std::memcpy(pinned->data(), bytes.data(), bytes.size());
  stream_->CopyIn(pinned->data(), to, bytes.size());
  stream_->Synchronize();
}

std::vector<std::byte> DeviceStream::Download(const void* from, uint64_t bytes) {
  auto pinned = OwnedMemory::Pinned(device_, bytes);
  CHECK(pinned.ok()) << pinned.status();
  stream_->CopyOut(from, pinned->data(), bytes);
  stream_->Synchronize();
  return std::vector<std::byte>(pinned->data(), pinned->data() + bytes);
}

double DeviceStream::MedianSeconds(bool small, const std::function<void(int call)>& queue) {
  const int calls = small ? 2 : kCallsPerWait;
  queue(0);
  stream_->Synchronize();
  std::vector<double> seconds;
  for (int i = 0; i < (small ? 1 : kWaits); ++i) {
    const absl::Time begin = SteadyNow();
    for (int call = 0; call < calls; ++call) queue(call);
    stream_->Synchronize();
    seconds.push_back(absl::ToDoubleSeconds(SteadyNow() - begin) / calls);
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

absl::StatusOr<DeviceMatrices> DeviceMatrices::Create(DeviceStream& stream, const Shape& shape) {
  DeviceMatrices matrices;
  matrices.shape_ = shape;
  auto memory =
      OwnedMemory::OnDevice(stream.device(), matrices.layout().stride * shape.batch *
                                                 kernels::cuda::ElementBytes(shape.dtype));
  if (!memory.ok()) return memory.status();
  matrices.memory_ = *std::move(memory);
  return matrices;
}

void DeviceMatrices::Fill(DeviceStream& stream, const std::vector<float>& values) {
  // All bits set are NaN in every dtype.
  std::vector<std::byte> bytes(memory_.size(), std::byte{0xff});
  const kernels::cuda::BatchLayout layout = this->layout();
  const int64_t element = kernels::cuda::ElementBytes(shape_.dtype);
  for (int64_t i = 0; i < shape_.batch * shape_.rows; ++i) {
    const int64_t to = i / shape_.rows * layout.stride + i % shape_.rows * layout.pitch;
    kernels::FromFloat(StoredAs(shape_.dtype),
                       absl::MakeConstSpan(values).subspan(i * shape_.cols, shape_.cols),
                       bytes.data() + to * element);
  }
  stream.Upload(bytes, memory_.data());
}

void DeviceMatrices::FillRepeated(DeviceStream& stream, uint64_t seed, float scale) {
  constexpr int64_t kMostNumbers = int64_t{1} << 22;
  const int64_t element = kernels::cuda::ElementBytes(shape_.dtype);
  const int64_t all = static_cast<int64_t>(memory_.size()) / element;
  const std::vector<float> numbers = Numbers(std::min(all, kMostNumbers), seed, scale);
  std::vector<std::byte> bytes(numbers.size() * element);
  kernels::FromFloat(StoredAs(shape_.dtype), numbers, bytes.data());
  for (uint64_t at = 0; at < memory_.size(); at += bytes.size()) {
    bytes.resize(std::min<uint64_t>(bytes.size(), memory_.size() - at));
    stream.Upload(bytes, memory_.data() + at);
  }
}

std::vector<float> DeviceMatrices::Read(DeviceStream& stream) const {
  const std::vector<std::byte> bytes = stream.Download(memory_.data(), memory_.size());
  const kernels::cuda::BatchLayout layout = this->layout();
  const int64_t element = kernels::cuda::ElementBytes(shape_.dtype);
  std::vector<float> values(num_elements());
  for (int64_t i = 0; i < shape_.batch * shape_.rows; ++i) {
    const int64_t from = i / shape_.rows * layout.stride + i % shape_.rows * layout.pitch;
    kernels::ToFloat(StoredAs(shape_.dtype), bytes.data() + from * element,
                     absl::MakeSpan(values).subspan(i * shape_.cols, shape_.cols));
  }
  return values;
}

}  // namespace kaon::gpu_check
