#include "kernels/nccl/load_link.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "kernels/nccl/network_interface.h"

namespace kaon::kernels {

absl::StatusOr<std::shared_ptr<DeviceLink>> LoadLink(const LinkOptions& options) {
  const absl::StatusOr<std::string> interface = InterfaceOf(options.network);
  if (!interface.ok()) return interface.status();
  std::string path = absl::StrCat("libkaon_", options.plugin, ".so");
  if (!options.plugin_dir.empty()) path = absl::StrCat(options.plugin_dir, "/", path);
  // Stays loaded: the link's code is in it.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return absl::NotFoundError(absl::StrCat("NCCL: cannot load ", path, ": ",
                                            reason != nullptr ? reason : "no reason given"));
  }
  const auto version = reinterpret_cast<int (*)()>(dlsym(library, "kaon_link_version"));
  const auto create = reinterpret_cast<DeviceLink* (*)(const LinkOptions*, std::string*)>(
      dlsym(library, "kaon_create_link"));
  if (version == nullptr || create == nullptr || version() != kLinkVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "NCCL: ", path, " has links of version ",
        version == nullptr ? "none" : absl::StrCat(version()), ", expecting ", kLinkVersion));
  }
  if (absl::Status status = UseInterface(*interface); !status.ok()) return status;
  LinkOptions resolved = options;
  resolved.network = *interface;
  std::string error;
  std::shared_ptr<DeviceLink> link(create(&resolved, &error));
  if (link == nullptr) return absl::FailedPreconditionError(error);
  return link;
}

}  // namespace kaon::kernels
