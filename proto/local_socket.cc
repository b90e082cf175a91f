#include "proto/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::proto {

namespace {

constexpr int kBacklog = 64;

struct Address {
  sockaddr_un bytes = {};
  socklen_t size = 0;
};

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  Address address;
  if (text.empty() || text == "@" || text.size() >= sizeof(address.bytes.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("local socket \"", Excerpt(text), "\" has ",
                                                   text.size(), " characters, must have 1 .. ",
                                                   sizeof(address.bytes.sun_path) - 1));
  }
  address.bytes.sun_family = AF_UNIX;
  std::memcpy(address.bytes.sun_path, text.data(), text.size());
  // An abstract name begins with a zero and ends where its length says.
  const bool is_abstract = text[0] == '@';
  if (is_abstract) address.bytes.sun_path[0] = '\0';
  address.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (is_abstract ? 0 : 1));
  return address;
}

Descriptor NewSocket() {
  return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Room for one descriptor sent with a message.
union Ancillary {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr alignment;
};

}  // namespace

absl::StatusOr<Descriptor> ListenLocal(const std::string& address) {
  KAON_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  Descriptor listener = NewSocket();
  const auto* name = reinterpret_cast<const sockaddr*>(&parsed.bytes);
  if (!listener.valid() || bind(listener.get(), name, parsed.size) != 0 ||
      listen(listener.get(), kBacklog) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on local socket ", address, ": ", std::strerror(errno)));
  }
  return listener;
}

absl::StatusOr<Descriptor> ConnectLocal(const std::string& address) {
  KAON_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  Descriptor connection = NewSocket();
  const auto* name = reinterpret_cast<const sockaddr*>(&parsed.bytes);
  if (!connection.valid() || connect(connection.get(), name, parsed.size) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to the shard's local socket: ", std::strerror(errno)));
  }
  return connection;
}

bool IsAbandoned(const std::string& path) {
  const absl::StatusOr<Address> parsed = ParseAddress(path);
  if (!parsed.ok()) return false;
  const Descriptor connection = NewSocket();
  const auto* name = reinterpret_cast<const sockaddr*>(&parsed->bytes);
  return connection.valid() && connect(connection.get(), name, parsed->size) != 0 &&
         errno == ECONNREFUSED;
}

absl::StatusOr<uid_t> PeerUser(const Descriptor& socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return absl::UnavailableError(absl::StrCat("SO_PEERCRED: ", std::strerror(errno)));
  }
  return peer.uid;
}

absl::Status SendLocal(const Descriptor& socket, absl::string_view bytes, int descriptor) {
  iovec run = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &run;
  message.msg_iovlen = 1;
  Ancillary beside = {};
  if (descriptor >= 0) {
    message.msg_control = beside.bytes;
    message.msg_controllen = sizeof(beside.bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  }
  const ssize_t sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return absl::UnavailableError("the other end of the local socket is gone or does not read");
}

absl::StatusOr<Descriptor> ReceiveDescriptor(const Descriptor& socket, absl::Duration timeout) {
  pollfd wanted = {socket.get(), POLLIN, 0};
  if (poll(&wanted, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) <= 0) {
    return absl::UnavailableError("the other end of the local socket does not answer");
  }
  char byte = 0;
  iovec run = {&byte, sizeof(byte)};
  Ancillary beside = {};
  msghdr message = {};
  message.msg_iov = &run;
  message.msg_iovlen = 1;
  message.msg_control = beside.bytes;
  message.msg_controllen = sizeof(beside.bytes);
  const ssize_t received = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const cmsghdr* header = received > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return absl::UnavailableError("the other end of the local socket refused the connection");
  }
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof(descriptor));
  return Descriptor(descriptor);
}

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace kaon::proto
