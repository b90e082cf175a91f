// The network that NCCL may use, named as an interface or as a subnet. Any thread, except that
// UseInterface changes the environment.
#ifndef KAON_KERNELS_NCCL_NETWORK_INTERFACE_H_
#define KAON_KERNELS_NCCL_NETWORK_INTERFACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kaon::kernels {

// Returns the interface of this machine with that name, or with an IPv4 address in that subnet,
// such as "eth1" or "10.1.0.0/16". NOT_FOUND lists the interfaces. INVALID_ARGUMENT for a subnet
// that is none.
absl::StatusOr<std::string> InterfaceOf(const std::string& network);

// Makes NCCL of this process use that interface alone, by its environment (NCCL_SOCKET_IFNAME).
// FAILED_PRECONDITION if the environment names another one. Call it before NCCL is used, and while
// no other thread uses the environment.
absl::Status UseInterface(const std::string& interface);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_NCCL_NETWORK_INTERFACE_H_
