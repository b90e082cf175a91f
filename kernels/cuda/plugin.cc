// Exports the functions of a plugin (kernels/backend.h, kernels/nccl/load_link.h), for
// libkaon_cuda.so and libkaon_cuda_on_host.so.
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_link.h"
#include "kernels/nccl/load_link.h"

namespace kaon::kernels::cuda {
namespace {

absl::StatusOr<std::unique_ptr<CudaBackend>> CreatePluginBackend(const BackendOptions& options) {
  absl::StatusOr<std::unique_ptr<Device>> device = Device::Open(options.device);
  if (!device.ok()) return device.status();
  CudaBackend::Options backend_options;
  backend_options.ordinal = options.device;
  return CudaBackend::Create(*std::move(device), backend_options);
}

absl::StatusOr<std::unique_ptr<CudaLink>> CreateLink(const LinkOptions& options) {
  absl::StatusOr<std::unique_ptr<NcclApi>> api =
      NcclApi::Load(options.nccl_library.empty() ? NcclApi::kLibrary : options.nccl_library);
  if (!api.ok()) return api.status();
  absl::StatusOr<std::unique_ptr<Device>> device = Device::Open(options.device);
  if (!device.ok()) return device.status();
  return CudaLink::Create(*std::move(device), options.device, *std::move(api), options.network);
}

}  // namespace
}  // namespace kaon::kernels::cuda

extern "C" int kaon_backend_version() { return kaon::kernels::kBackendVersion; }

// The caller owns the result; null with the reason in *error.
extern "C" kaon::kernels::Backend* kaon_create_backend(const kaon::kernels::BackendOptions* options,
                                                       std::string* error) {
  auto backend = kaon::kernels::cuda::CreatePluginBackend(*options);
  if (!backend.ok()) {
    *error = std::string(backend.status().message());
    return nullptr;
  }
  return backend->release();
}

extern "C" int kaon_link_version() { return kaon::kernels::kLinkVersion; }

// The caller owns the result; null with the reason in *error.
extern "C" kaon::kernels::DeviceLink* kaon_create_link(const kaon::kernels::LinkOptions* options,
                                                       std::string* error) {
  auto link = kaon::kernels::cuda::CreateLink(*options);
  if (!link.ok()) {
    *error = std::string(link.status().message());
    return nullptr;
  }
  return link->release();
}
