// Exports the functions of a plugin (kernels/backend.h), for libkaon_cuda.so and
// libkaon_cuda_on_host.so.
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"

namespace kaon::kernels::cuda {
namespace {

absl::StatusOr<std::unique_ptr<CudaBackend>> CreatePluginBackend(const BackendOptions& options) {
  absl::StatusOr<std::unique_ptr<Device>> device = Device::Open(options.device);
  if (!device.ok()) return device.status();
  CudaBackend::Options backend_options;
  backend_options.ordinal = options.device;
  return CudaBackend::Create(*std::move(device), backend_options);
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
