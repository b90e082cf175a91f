// UNIX stream sockets between the processes of one machine, with the user of the peer and with
// transfer of file descriptors. An address is a path, or @ and a name that needs no file (an
// abstract socket). Any thread may call the functions; one thread at a time for one socket.
#ifndef KAON_PROTO_LOCAL_SOCKET_H_
#define KAON_PROTO_LOCAL_SOCKET_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/descriptor.h"

namespace kaon::proto {

// Listens at an address; the socket accepts without blocking. INVALID_ARGUMENT for an address that
// is empty or too long; FAILED_PRECONDITION if the process cannot listen there.
absl::StatusOr<Descriptor> ListenLocal(const std::string& address);

// Connects to an address; the socket does not block. UNAVAILABLE if no process listens there, or
// too many connections wait already.
absl::StatusOr<Descriptor> ConnectLocal(const std::string& address);

// Returns true if a socket exists at that path and its listener has ended, for example because it
// was killed.
bool IsAbandoned(const std::string& path);

// Returns the user of the peer process, as it was when it connected, in this process's user
// namespace.
absl::StatusOr<uid_t> PeerUser(const Descriptor& socket);

// Sends all of `bytes` at once, with `descriptor` unless it is negative. UNAVAILABLE if the peer is
// gone or does not read.
absl::Status SendLocal(const Descriptor& socket, absl::string_view bytes, int descriptor = -1);

// Receives a descriptor that was sent with some bytes. UNAVAILABLE if the peer ends or `timeout`
// passes first.
absl::StatusOr<Descriptor> ReceiveDescriptor(const Descriptor& socket, absl::Duration timeout);

// Returns /proc/sys/kernel/random/boot_id, which is the same for all processes of one machine.
// Empty if unknown.
std::string BootId();

}  // namespace kaon::proto

#endif  // KAON_PROTO_LOCAL_SOCKET_H_
