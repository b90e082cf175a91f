#include "kernels/nccl/network_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kaon::kernels {
namespace {

constexpr char kVariable[] = "NCCL_SOCKET_IFNAME";

struct Subnet {
  uint32_t address = 0;
  uint32_t mask = 0;
};

absl::StatusOr<Subnet> ParseSubnet(const std::string& network) {
  const size_t slash = network.find('/');
  in_addr address;
  int bits = 0;
  if (inet_pton(AF_INET, network.substr(0, slash).c_str(), &address) != 1 ||
      !absl::SimpleAtoi(network.substr(slash + 1), &bits) || bits < 1 || bits > 32) {
    return absl::InvalidArgumentError(
        absl::StrCat("nccl is \"", network, "\", expecting an interface or an IPv4 subnet such as ",
                     "10.1.0.0/16"));
  }
  return Subnet{ntohl(address.s_addr), ~uint32_t{0} << (32 - bits)};
}

struct AddressesDeleter {
  void operator()(ifaddrs* addresses) const { freeifaddrs(addresses); }
};

}  // namespace

absl::StatusOr<std::string> InterfaceOf(const std::string& network) {
  const bool is_subnet = network.find('/') != std::string::npos;
  Subnet subnet;
  if (is_subnet) {
    const absl::StatusOr<Subnet> parsed = ParseSubnet(network);
    if (!parsed.ok()) return parsed.status();
    subnet = *parsed;
  }
  ifaddrs* listed = nullptr;
  if (getifaddrs(&listed) != 0) {
    return absl::FailedPreconditionError("nccl: the interfaces of this machine cannot be listed");
  }
  const std::unique_ptr<ifaddrs, AddressesDeleter> addresses(listed);
  std::set<std::string> names;
  for (const ifaddrs* one = listed; one != nullptr; one = one->ifa_next) {
    names.insert(one->ifa_name);
    if (!is_subnet && network == one->ifa_name) return network;
    if (!is_subnet || one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const auto* const address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    if (((ntohl(address->sin_addr.s_addr) ^ subnet.address) & subnet.mask) == 0) {
      return std::string(one->ifa_name);
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "nccl is \"", network,
      "\", this machine has no such network; its interfaces: ", absl::StrJoin(names, ", ")));
}

absl::Status UseInterface(const std::string& interface) {
  // '=' demands the whole name: otherwise it is a prefix.
  const std::string exactly = absl::StrCat("=", interface);
  const char* const present = std::getenv(kVariable);
  if (present != nullptr && present != exactly && present != interface) {
    return absl::FailedPreconditionError(absl::StrCat(
        kVariable, " is \"", present, "\" in the environment, nccl names ", interface));
  }
  if (present == nullptr) setenv(kVariable, exactly.c_str(), /*overwrite=*/0);
  return absl::OkStatus();
}

}  // namespace kaon::kernels
