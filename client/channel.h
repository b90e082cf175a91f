// How every caller reaches a Kaon server: one gRPC channel over mutual TLS that accepts only a
// server whose certificate names the expected role and the host that was dialled. The caller owns
// the returned channel and shares it between the stubs it makes; function and channel may be used
// from any thread.
#ifndef KAON_CLIENT_CHANNEL_H_
#define KAON_CLIENT_CHANNEL_H_

#include <grpcpp/channel.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/kaon/client.h"
#include "proto/identity.h"

namespace kaon::client {

// Does not connect: that happens at the first call, and again whenever the connection is lost. Each
// channel has its own connection. Certificates are read again within seconds of a change.
//   INVALID_ARGUMENT     the address is not host:port, or only some of the three files are named
//   FAILED_PRECONDITION  no certificates for an address that is not loopback
//   NOT_FOUND            a certificate file cannot be read (names it)
// Calls on the channel fail with UNAVAILABLE when the server is unknown to the CA, or has another
// role or host name.
absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateChannel(const std::string& address,
                                                             const kaon::TlsFiles& tls,
                                                             proto::Role expected_server);

// `count` channels to one server, each with its own connection, which share what they read of the
// certificates. Errors as of CreateChannel.
absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> CreateChannels(
    const std::string& address, const kaon::TlsFiles& tls, proto::Role expected_server,
    size_t count);

}  // namespace kaon::client

#endif  // KAON_CLIENT_CHANNEL_H_
