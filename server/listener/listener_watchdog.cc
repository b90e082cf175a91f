#include "server/listener/listener_watchdog.h"

#include <glog/logging.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
#include "proto/descriptor.h"
#include "proto/status_macros.h"

namespace kaon::listener {

namespace {

// Returns the first bytes of a TLS client; empty if OpenSSL has no memory for them.
std::string ClientHello() {
  ERR_set_mark();
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(
      context == nullptr ? nullptr : SSL_new(context.get()), SSL_free);
  std::string hello;
  if (ssl != nullptr) {
    // The SSL object owns both BIOs.
    BIO* const out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), out);
    SSL_set_connect_state(ssl.get());
    SSL_do_handshake(ssl.get());
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(out, &bytes);
    hello.assign(bytes, size);
  }
  ERR_pop_to_mark();
  return hello;
}

absl::Status Await(int socket, short events, absl::Time end, const char* what) {
  pollfd wanted = {socket, events, 0};
  while (true) {
    const absl::Duration left = std::max(end - SteadyNow(), absl::ZeroDuration());
    const int ready = poll(&wanted, 1, static_cast<int>(absl::ToInt64Milliseconds(left)));
    if (ready > 0) return absl::OkStatus();
    if (ready == 0) return absl::DeadlineExceededError(what);
    if (errno != EINTR) return absl::UnavailableError(absl::StrCat("poll: ", std::strerror(errno)));
  }
}

absl::Status Connect(int socket, const sockaddr_storage& address, absl::Time end) {
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return absl::OkStatus();
  }
  int error = errno;
  if (error == EINPROGRESS) {
    KAON_RETURN_IF_ERROR(Await(socket, POLLOUT, end, "the connection is not accepted"));
    socklen_t size = sizeof(error);
    getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("connect: ", std::strerror(error)));
}

}  // namespace

absl::Status ProbePort(const sockaddr_storage& address, bool tls, absl::Duration timeout) {
  const absl::Time end = SteadyNow() + timeout;
  const proto::Descriptor connection(
      socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection.valid()) {
    return absl::UnavailableError(absl::StrCat("socket: ", std::strerror(errno)));
  }
  KAON_RETURN_IF_ERROR(Connect(connection.get(), address, end));
  if (tls) {
    const std::string hello = ClientHello();
    if (hello.empty()) return absl::UnavailableError("no memory for a handshake");
    // If the peer has closed the connection, the send fails and the poll below reports it.
    (void)!send(connection.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
  }
  // Without TLS the server sends first.
  return Await(connection.get(), POLLIN, end, "no byte of a handshake comes");
}

ListenerWatchdog::ListenerWatchdog(Options options)
    : options_(std::move(options)), thread_(options_.interval, [this] { return Look(); }) {}

absl::Duration ListenerWatchdog::Look() {
  const absl::Status answered = ProbePort(options_.address, options_.tls, options_.timeout);
  failures_ = answered.ok() ? 0 : failures_ + 1;
  if (failures_ < options_.failures) return options_.interval;
  const std::string reason =
      absl::StrCat("the port has not answered ", failures_, " times in a row (", answered.message(),
                   "): this process ends, to be started again");
  if (options_.on_deaf) {
    options_.on_deaf(reason);
    return absl::InfiniteDuration();
  }
  LOG(ERROR) << reason;
  // Hanging threads must not keep the process alive.
  std::_Exit(1);
}

}  // namespace kaon::listener
