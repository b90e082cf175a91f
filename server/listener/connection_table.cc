#include "server/listener/connection_table.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace kaon::listener {

namespace {

constexpr size_t kMaxUnknown = 128;
// A larger table searches for closed connections at most once per kReapInterval.
constexpr size_t kManyConnections = 1000;
constexpr absl::Duration kReapInterval = absl::Milliseconds(100);

// Returns 0 if `fd` is not a socket.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

// Returns how many bytes the process has read; 0 if the kernel does not say. Bytes that wait in the
// kernel are not resident.
uint64_t ReadBytes(int fd) {
  // Ask in this order: bytes that arrive in between must not seem to wait.
  int waiting = 0;
  if (ioctl(fd, SIOCINQ, &waiting) != 0) return 0;
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received - std::min<uint64_t>(waiting, info.tcpi_bytes_received);
}

std::string TextOf(int family, const void* bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, bytes, text, sizeof(text));
  return text;
}

}  // namespace

Peer PeerOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    const std::string host = TextOf(AF_INET, &v4.sin_addr);
    return {host, absl::StrCat(host, ":", ntohs(v4.sin_port))};
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  in6_addr host = v6.sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&host)) {
    const std::string text = TextOf(AF_INET, &host.s6_addr[12]);
    return {text, absl::StrCat(text, ":", ntohs(v6.sin6_port))};
  }
  const std::string name = absl::StrCat(TextOf(AF_INET6, &host), ":", ntohs(v6.sin6_port));
  std::memset(&host.s6_addr[8], 0, 8);
  return {TextOf(AF_INET6, &host), name};
}

std::string PeerName(absl::string_view grpc_peer) {
  // Forms: ipv4:127.0.0.1:80, ipv6:%5B::1%5D:80, ipv6:%5Bfe80::1%252%5D:80.
  grpc_peer.remove_prefix(std::min(grpc_peer.size(), grpc_peer.find(':') + 1));
  const std::string text = absl::StrReplaceAll(
      grpc_peer, {{"%5B", ""}, {"%5D", ""}, {"%25", "%"}, {"[", ""}, {"]", ""}});
  const size_t scope = text.find('%');
  if (scope == std::string::npos) return text;
  return absl::StrCat(text.substr(0, scope), text.substr(text.rfind(':')));
}

std::optional<ConnectionUse> UseOf(const OpenConnection& connection) {
  ConnectionUse use;
  use.id = connection.id;
  use.owner = connection.owner;
  // Handlers take bytes after the process has read them, so ask for their counts first.
  use.taken_bytes = connection.counts->taken_bytes.load(std::memory_order_relaxed);
  use.taken_messages = connection.counts->taken_messages.load(std::memory_order_relaxed);
  use.open_calls = connection.counts->open_calls.load(std::memory_order_relaxed);
  use.received_bytes = ReadBytes(connection.fd);
  // A descriptor that is this connection's now was so before.
  if (CookieOf(connection.fd) != connection.id) return std::nullopt;
  return use;
}

ConnectionTable::Limits ConnectionTable::Share(size_t descriptors) {
  Limits limits;
  limits.descriptors = descriptors;
  limits.unknown = std::clamp<size_t>(descriptors / 4, 1, kMaxUnknown);
  limits.per_address = std::max<size_t>(descriptors / 4 * 3, 1);
  return limits;
}

bool ConnectionTable::HasRoom() const {
  return connections_.size() + unknown_.size() + 2 <= limits_.descriptors;
}

bool ConnectionTable::MakeRoom(absl::Time now) {
  if (HasRoom()) return true;
  Sweep(now);
  if (HasRoom()) return true;
  const auto oldest = Oldest();
  if (oldest != connections_.end()) Cut(oldest);
  return HasRoom();
}

bool ConnectionTable::FullOfKnown() const {
  return !HasRoom() && unknown_.empty() &&
         std::all_of(connections_.begin(), connections_.end(),
                     [](const Connection& connection) { return connection.live; });
}

bool ConnectionTable::Add(int fd, const Peer& peer, absl::Time now) {
  if (CountOf(peer.address) >= limits_.per_address) Sweep(now);
  if (CountOf(peer.address) >= limits_.per_address) {
    const auto oldest = Oldest(&peer.address);
    if (oldest == connections_.end()) return false;
    Cut(oldest);
  }
  if (unknown_.size() >= limits_.unknown) Cut(Oldest());
  // An older connection of that name is closed already, or it connected to another address of this
  // machine.
  const auto namesake = unknown_.find(peer.name);
  if (namesake != unknown_.end()) Cut(namesake->second);
  proto::Descriptor duplicate(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid()) return false;
  connections_.push_back({fd, CookieOf(fd), peer, now, std::move(duplicate), /*identity=*/"",
                          /*certificate=*/nullptr, std::make_shared<CallCounts>(call_limits_)});
  unknown_[peer.name] = std::prev(connections_.end());
  by_name_[peer.name] = std::prev(connections_.end());
  ++by_address_[peer.address];
  return true;
}

void ConnectionTable::MarkKnown(const std::string& name, const std::string& identity,
                                std::shared_ptr<const auth::PeerCertificate> certificate) {
  const auto found = unknown_.find(name);
  if (found == unknown_.end()) return;
  const auto connection = found->second;
  if (certificate != nullptr) {
    const auto held = by_identity_.find(identity);
    if (held != by_identity_.end() && held->second >= limits_.per_identity) return Cut(connection);
    ++by_identity_[identity];
  }
  connection->identity = identity;
  connection->certificate = std::move(certificate);
  EndUnknown(name);
}

std::vector<CertifiedConnection> ConnectionTable::Certified() const {
  std::vector<CertifiedConnection> certified;
  for (const Connection& connection : connections_) {
    if (!connection.live || connection.certificate == nullptr) continue;
    certified.push_back({connection.cookie, connection.certificate});
  }
  return certified;
}

std::shared_ptr<CallCounts> ConnectionTable::CountsOf(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second->counts;
}

std::vector<OpenConnection> ConnectionTable::Open() const {
  std::vector<OpenConnection> open;
  open.reserve(connections_.size());
  for (const Connection& connection : connections_) {
    if (!connection.live) continue;
    const std::string* owner = &connection.peer.name;
    if (connection.duplicate.valid()) owner = &connection.peer.address;
    if (connection.certificate != nullptr) owner = &connection.identity;
    open.push_back({connection.fd, connection.cookie, *owner, connection.counts});
  }
  return open;
}

bool ConnectionTable::End(uint64_t id) {
  const auto found = std::find_if(
      connections_.begin(), connections_.end(),
      [id](const Connection& connection) { return connection.cookie == id && connection.live; });
  if (found == connections_.end()) return false;
  // The owner may have closed its descriptor meanwhile, and another file may have the number. A
  // duplicate stays what it is.
  const proto::Descriptor duplicate(fcntl(found->fd, F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid() || CookieOf(duplicate.get()) != id) return false;
  // A connection that is dissolved has nothing left to read, unlike one that is only shut down.
  sockaddr nobody = {};
  nobody.sa_family = AF_UNSPEC;
  connect(duplicate.get(), &nobody, sizeof(nobody));
  shutdown(duplicate.get(), SHUT_RDWR);
  if (found->duplicate.valid()) EndUnknown(found->peer.name);
  found->live = false;
  Leave(*found);
  return true;
}

void ConnectionTable::EndUnknown(const std::string& name) {
  const auto found = unknown_.find(name);
  if (found == unknown_.end()) return;
  found->second->duplicate = proto::Descriptor();
  unknown_.erase(found);
}

size_t ConnectionTable::CountOf(const std::string& address) const {
  const auto held = by_address_.find(address);
  return held == by_address_.end() ? 0 : held->second;
}

void ConnectionTable::Cut(Connections::iterator connection) {
  ++num_cut_;
  shutdown(connection->duplicate.get(), SHUT_RDWR);
  EndUnknown(connection->peer.name);
  connection->live = false;
  Leave(*connection);
}

void ConnectionTable::Leave(const Connection& connection) {
  const auto held = by_address_.find(connection.peer.address);
  if (--held->second == 0) by_address_.erase(held);
  if (connection.certificate == nullptr) return;
  const auto of_identity = by_identity_.find(connection.identity);
  if (--of_identity->second == 0) by_identity_.erase(of_identity);
}

ConnectionTable::Connections::iterator ConnectionTable::Oldest(const std::string* address) {
  std::map<std::string, size_t> counts;
  for (const auto& [name, connection] : unknown_) ++counts[connection->peer.address];
  auto oldest = connections_.end();
  for (const auto& [name, connection] : unknown_) {
    if (address != nullptr && connection->peer.address != *address) continue;
    if (oldest != connections_.end()) {
      const size_t most = counts[oldest->peer.address];
      const size_t held = counts[connection->peer.address];
      if (held < most || (held == most && connection->since >= oldest->since)) continue;
    }
    oldest = connection;
  }
  return oldest;
}

void ConnectionTable::Sweep(absl::Time now) {
  ReapClosed(now);
  for (auto next = unknown_.begin(); next != unknown_.end();) {
    const auto connection = (next++)->second;
    if (connection->since + limits_.unknown_lifetime <= now) Cut(connection);
  }
}

void ConnectionTable::ReapClosed(absl::Time now) {
  // The loop below asks the kernel about each connection, while every new call waits.
  if (connections_.size() > kManyConnections && now < next_reap_) return;
  next_reap_ = now + kReapInterval;
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto connection = next++;
    if (CookieOf(connection->fd) == connection->cookie) continue;
    // Another connection may have this name by now.
    if (connection->duplicate.valid()) EndUnknown(connection->peer.name);
    if (connection->live) Leave(*connection);
    Forget(connection);
  }
}

void ConnectionTable::Forget(Connections::iterator connection) {
  const auto named = by_name_.find(connection->peer.name);
  if (named != by_name_.end() && named->second == connection) by_name_.erase(named);
  connections_.erase(connection);
}

}  // namespace kaon::listener
