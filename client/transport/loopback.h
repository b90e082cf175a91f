// Tells whether an address stays on this machine. Only on such addresses does Kaon communicate
// without certificates. Pure functions; any thread.
#ifndef KAON_CLIENT_TRANSPORT_LOOPBACK_H_
#define KAON_CLIENT_TRANSPORT_LOOPBACK_H_

#include "absl/strings/string_view.h"

namespace kaon::client {

// Returns the host of "host:port" or "[v6]:port", without brackets. Returns "" if the address has
// another form: a scheme, a list, a blank, a missing or impossible port.
absl::string_view HostOf(absl::string_view host_port);

// Returns true for 127.0.0.0/8, ::1 and the name localhost, with a port. Returns false for anything
// else. So a name that only looks like a loopback address (127.0.0.1.example.org) never gets
// plaintext.
bool IsLoopback(absl::string_view host_port);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_LOOPBACK_H_
