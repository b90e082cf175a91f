#include "client/train/device_gradients.h"

#include <utility>

#include "proto/status_macros.h"

namespace kaon::train {

absl::StatusOr<std::unique_ptr<DeviceGradients>> DeviceGradients::Create(int device) {
  kernels::BackendOptions options;
  options.name = "cuda";
  options.device = device;
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> backend, kernels::CreateBackend(options));
  return std::make_unique<DeviceGradients>(std::move(backend), device);
}

DeviceGradients::~DeviceGradients() {
  for (const auto* const regions : {&regions_, &weights_}) {
    for (const kernels::Region region : *regions) backend_->Free(region);
  }
}

absl::Status DeviceGradients::CopyIn(const TensorBuffers& gradients) {
  for (size_t id = 0; id < gradients.tensors.size(); ++id) {
    const std::vector<std::byte>& tensor = gradients.tensors[id];
    if (id == regions_.size()) {
      KAON_ASSIGN_OR_RETURN(const kernels::Region region, backend_->Allocate(tensor.size()));
      regions_.push_back(region);
    }
    // Done when it returns, so the views need no event.
    backend_->CopyIn(tensor, regions_[id]);
  }
  return absl::OkStatus();
}

absl::Status DeviceGradients::AllocateWeights(const TensorBuffers& like) {
  while (weights_.size() < like.tensors.size()) {
    KAON_ASSIGN_OR_RETURN(const kernels::Region region,
                          backend_->Allocate(like.tensors[weights_.size()].size()));
    weights_.push_back(region);
  }
  return absl::OkStatus();
}

void DeviceGradients::CopyOut(TensorBuffers* to) const {
  for (size_t id = 0; id < to->tensors.size(); ++id) {
    backend_->CopyOut(weights_[id], absl::MakeSpan(to->tensors[id]));
  }
}

}  // namespace kaon::train
