// Finds the process that uses a TCP port of this machine, for error messages. Reads /proc; any
// thread.
#ifndef KAON_SERVER_LISTENER_PORT_OWNER_H_
#define KAON_SERVER_LISTENER_PORT_OWNER_H_

#include <string>

namespace kaon::listener {

// Returns "pid PID (PROGRAM)" of a process that listens on `port` in this network namespace.
// Returns "" if /proc does not show one: it belongs to another user, or to another container.
std::string PortOwner(int port);

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_PORT_OWNER_H_
