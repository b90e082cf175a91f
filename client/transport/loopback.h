// Whether an address stays on this machine: the only addresses on which Kaon speaks without
// certificates. Pure function; any thread.
#ifndef KAON_CLIENT_TRANSPORT_LOOPBACK_H_
#define KAON_CLIENT_TRANSPORT_LOOPBACK_H_

#include "absl/strings/string_view.h"

namespace kaon::client {

// The host of "host:port" or "[v6]:port", without brackets; empty if the address does not have that
// form (schemes, lists, blanks, a missing or impossible port).
absl::string_view HostOf(absl::string_view host_port);

// True for 127.0.0.0/8, ::1 and the name localhost, with a port. Anything else is not, so that a
// name that merely looks like a loopback address (127.0.0.1.example.org) never gets plaintext.
bool IsLoopback(absl::string_view host_port);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_LOOPBACK_H_
