// UNIX stream sockets between the processes of one machine: who is at the other end, and file
// descriptors sent over. An address is a path, or @ and a name that needs no file (an abstract
// socket). Functions may be called from any thread, on one socket by one at a time.
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

// Accepts without blocking. INVALID_ARGUMENT for an address that is empty or too long;
// FAILED_PRECONDITION if it cannot be listened on.
absl::StatusOr<Descriptor> ListenLocal(const std::string& address);

// Without blocking from then on. UNAVAILABLE if nobody listens there, or too many wait already.
absl::StatusOr<Descriptor> ConnectLocal(const std::string& address);

// True if a socket is at that path whose listener has ended, as one that was killed has.
bool IsAbandoned(const std::string& path);

// Of the process that connected, as it was then, in this process's user namespace.
absl::StatusOr<uid_t> PeerUser(const Descriptor& socket);

// All of `bytes` at once, with `descriptor` unless it is negative. UNAVAILABLE if the peer is gone
// or does not read.
absl::Status SendLocal(const Descriptor& socket, absl::string_view bytes, int descriptor = -1);

// A descriptor that came with some bytes. UNAVAILABLE if the peer ends or `timeout` passes first.
absl::StatusOr<Descriptor> ReceiveDescriptor(const Descriptor& socket, absl::Duration timeout);

// /proc/sys/kernel/random/boot_id: the same for processes on one machine. Empty if unknown.
std::string BootId();

}  // namespace kaon::proto

#endif  // KAON_PROTO_LOCAL_SOCKET_H_
