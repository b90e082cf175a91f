#include "client/transport/loopback.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "proto/text.h"

namespace kaon::client {

absl::string_view HostOf(absl::string_view host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == absl::string_view::npos) return {};
  absl::string_view host = host_port.substr(0, colon);
  const absl::string_view port = host_port.substr(colon + 1);
  uint64_t number = 0;
  if (!proto::ParseDecimal(port, &number, 65535)) return {};
  // A blank means a list that was cut only at its commas.
  if (!std::all_of(host.begin(), host.end(), absl::ascii_isgraph)) return {};
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') return {};
    return host.substr(1, host.size() - 2);
  }
  // Another colon or slash means a scheme, a list or an unbracketed IPv6 address.
  if (host.find_first_of(":/,[]") != absl::string_view::npos) return {};
  return host;
}

bool IsLoopback(absl::string_view host_port) {
  const std::string host(HostOf(host_port));
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace kaon::client
