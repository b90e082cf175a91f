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
#include "client/kaon/client_options.h"
#include "proto/identity.h"

namespace kaon::client {

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
