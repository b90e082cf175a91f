"""Where a tidy rule gives way, and why. An exemption that nothing needs any more is itself a finding."""

_WIRE_NAME = "the data plane's name on the wire (protocol.md)"
_OWN_MUTEX = "this is where Mutex is made of std::mutex"
_PUBLIC = "public headers use the standard library only; Mutex needs Abseil's attributes"

# (rule, path): reason
EXEMPT = {
    ("file-name", "proto/kaon/v1/shard_data.proto"): _WIRE_NAME,
    ("type-name", "server/shard/shard_service.h"): _WIRE_NAME,
    ("mutex", "kernels/mutex.h"): _OWN_MUTEX,
    ("mutex", "client/kaon/future.h"): _PUBLIC,
}
