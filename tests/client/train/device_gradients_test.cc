#include "client/train/device_gradients.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace kaon::train {
namespace {

TEST(DeviceGradientsTest, CopiesEachStepsGradientsToTheSameMemory) {
  kernels::BackendOptions options;
  options.name = "cuda_on_host";
  options.plugin_dir = "kernels/cuda";
  auto created = kernels::CreateBackend(options);
  ASSERT_TRUE(created.ok()) << created.status();
  kernels::Backend& backend = **created;
  DeviceGradients gradients(*std::move(created), 3);
  EXPECT_EQ(gradients.device(), 3);
  const void* first = nullptr;
  for (const std::byte value : {std::byte{1}, std::byte{2}}) {
    TensorBuffers buffers;
    buffers.tensors = {std::vector<std::byte>(40, value), std::vector<std::byte>(12, value)};
    ASSERT_TRUE(gradients.CopyIn(buffers).ok());
    if (first == nullptr) first = gradients.data(0);
    EXPECT_EQ(gradients.data(0), first);
    std::vector<std::byte> out(12);
    backend.CopyOut({kernels::Space::kDevice, static_cast<const std::byte*>(gradients.data(1)), 12},
                    absl::MakeSpan(out));
    EXPECT_EQ(out, buffers.tensors[1]);
  }
}

TEST(DeviceGradientsTest, CopiesWeightsFromTheMemoryThatTheyWerePulledTo) {
  kernels::BackendOptions options;
  options.name = "cuda_on_host";
  options.plugin_dir = "kernels/cuda";
  auto created = kernels::CreateBackend(options);
  ASSERT_TRUE(created.ok()) << created.status();
  kernels::Backend& backend = **created;
  DeviceGradients on_device(*std::move(created), 3);
  TensorBuffers buffers;
  buffers.tensors = {std::vector<std::byte>(40), std::vector<std::byte>(12)};
  for (const std::byte value : {std::byte{1}, std::byte{2}}) {
    ASSERT_TRUE(on_device.AllocateWeights(buffers).ok());
    const std::vector<std::byte> pulled(12, value);
    backend.CopyIn(pulled, {kernels::Space::kDevice, static_cast<std::byte*>(on_device.weights(1)),
                            pulled.size()});
    on_device.CopyOut(&buffers);
    EXPECT_EQ(buffers.tensors[1], pulled);
  }
}

}  // namespace
}  // namespace kaon::train
