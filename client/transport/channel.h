// Creates the gRPC channels on which every caller reaches a Kaon server, over mutual TLS. A channel
// accepts only a server whose certificate names the expected role and the dialled host. The caller
// owns the returned channel and shares it between its stubs. Functions and channels are
// thread-safe.
#ifndef KAON_CLIENT_TRANSPORT_CHANNEL_H_
#define KAON_CLIENT_TRANSPORT_CHANNEL_H_

#include <grpcpp/channel.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/kaon/client.h"
#include "proto/identity.h"

namespace kaon::client {

// Largest message that a caller accepts: a listing of 100,000 parameters fits.
inline constexpr int kMaxResponseBytes = 64 << 20;

// Both ends ping a connection on which they read nothing for kKeepaliveTime. They close it if the
// answer takes longer than kKeepaliveTimeout. So a broken connection ends within 4 s: a half-open
// one, a vanished peer, a TLS stream that lost bytes. An answer may wait behind 2 MiB of data, so
// each connection needs 1 MiB/s.
inline constexpr absl::Duration kKeepaliveTime = absl::Seconds(1);
inline constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(3);

// Returns a channel with its own connection. Does not connect: the first call does, and a call
// after a lost connection does it again. Reads certificates again within seconds of a change.
//   INVALID_ARGUMENT     the address is not host:port, or only some of the three files are named
//   FAILED_PRECONDITION  no certificates for an address that is not loopback
//   NOT_FOUND            a certificate file cannot be read (names it)
// Calls on the channel fail with UNAVAILABLE if the CA does not know the server, or if the server
// has another role or host name.
absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateChannel(const std::string& address,
                                                             const kaon::TlsFiles& tls,
                                                             proto::Role expected_server);

// Returns `count` channels to one server, each with its own connection. They share the certificates
// that were read. Errors as in CreateChannel.
absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> CreateChannels(
    const std::string& address, const kaon::TlsFiles& tls, proto::Role expected_server,
    size_t count);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_CHANNEL_H_
