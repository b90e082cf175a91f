// Opens the DeviceLink of a CUDA device, from libkaon_cuda.so and NCCL. Neither is linked: a host
// without them gets the reason. Any thread; it changes the environment (network_interface.h).
#ifndef KAON_KERNELS_NCCL_LOAD_LINK_H_
#define KAON_KERNELS_NCCL_LOAD_LINK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/nccl/device_link.h"

namespace kaon::kernels {

// Version of LinkOptions, DeviceLink and what it uses, as kBackendVersion is of Backend.
inline constexpr int kLinkVersion = 4;

struct LinkOptions {
  // Interface or subnet.
  std::string network;
  // Number of the CUDA device.
  int device = 0;
  // Name of the library that has the device, as BackendOptions::name.
  std::string plugin = "cuda";
  // Directory of that library; empty: where the loader looks.
  std::string plugin_dir;
  // NCCL itself; empty: where the loader looks.
  std::string nccl_library;
};

// NOT_FOUND: a library, the device or the network is absent. FAILED_PRECONDITION: one of them is
// too old or cannot be used. Both say why.
absl::StatusOr<std::shared_ptr<DeviceLink>> LoadLink(const LinkOptions& options);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_NCCL_LOAD_LINK_H_
