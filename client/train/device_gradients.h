// The gradients and weights of a worker in the memory of a GPU, as a trainer on one has them: for
// runs over NCCL. Each step copies gradients there first, and weights back. Owned by its
// ServiceSession; one thread.
#ifndef KAON_CLIENT_TRAIN_DEVICE_GRADIENTS_H_
#define KAON_CLIENT_TRAIN_DEVICE_GRADIENTS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/train/tensor_buffers.h"
#include "kernels/backend.h"

namespace kaon::train {

class DeviceGradients {
 public:
  // Errors of CreateBackend: a host without the CUDA backend or a GPU says so.
  static absl::StatusOr<std::unique_ptr<DeviceGradients>> Create(int device);
  // Uses memory of `backend`, which computes on that device.
  DeviceGradients(std::unique_ptr<kernels::Backend> backend, int device)
      : backend_(std::move(backend)), device_(device) {}
  ~DeviceGradients();

  // Copies gradients to the device; the first call allocates. RESOURCE_EXHAUSTED without room.
  absl::Status CopyIn(const TensorBuffers& gradients);
  // Returns the memory of a gradient.
  const void* data(uint32_t parameter_id) const { return regions_[parameter_id].data(); }
  int device() const { return device_; }

  // Allocates memory for weights of these sizes, once. RESOURCE_EXHAUSTED without room.
  absl::Status AllocateWeights(const TensorBuffers& like);
  // Returns the memory to pull a parameter to.
  void* weights(uint32_t parameter_id) const { return weights_[parameter_id].data(); }
  // Copies the weights from the device.
  void CopyOut(TensorBuffers* to) const;

 private:
  const std::unique_ptr<kernels::Backend> backend_;
  const int device_;
  // One for each parameter.
  std::vector<kernels::Region> regions_;
  std::vector<kernels::Region> weights_;
};

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_DEVICE_GRADIENTS_H_
