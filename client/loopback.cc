#include "client/loopback.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace kaon::client {

absl::string_view HostOf(absl::string_view host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == absl::string_view::npos) return {};
  absl::string_view host = host_port.substr(0, colon);
  const absl::string_view port = host_port.substr(colon + 1);
  uint32_t number = 0;
  const bool digits_only =
      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits_only || !absl::SimpleAtoi(port, &number) || number > 65535) return {};
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') return {};
    return host.substr(1, host.size() - 2);
  }
  // Any further colon or slash is a scheme, a list or an unbracketed IPv6 address.
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
