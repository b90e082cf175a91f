// Limits and settings of gRPC connections that both ends must agree on (protocol.md section 4).
// Constants and one pure function; any thread.
#ifndef KAON_PROTO_GRPC_LIMITS_H_
#define KAON_PROTO_GRPC_LIMITS_H_

#include <grpc/grpc.h>

#include "absl/time/time.h"

namespace kaon::proto {

// Largest request and response in bytes: a registration or a listing of 100,000 parameters fits.
inline constexpr int kMaxMessageBytes = 64 << 20;

// Both ends ping a connection on which they read nothing for kKeepaliveTime, and close it when the
// answer takes longer than kKeepaliveTimeout. A broken connection ends within 4 s: a half-open one,
// a vanished peer, a TLS stream that lost bytes. An answer waits behind up to 2 MiB of data, so
// each connection needs 1 MiB/s.
inline constexpr absl::Duration kKeepaliveTime = absl::Seconds(1);
inline constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(3);

// Calls `set(name, value)` for each channel argument that clients and servers share.
template <typename Set>
void SetSharedArguments(const Set& set) {
  // Without these, 32 slow streams held 1.3 GB of read-ahead; with them 100 MB, at the same speed
  // (protocol.md section 4).
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 20);
  set(GRPC_ARG_TCP_READ_CHUNK_SIZE, 1 << 20);
  set(GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, 1 << 20);
  set(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 1 << 20);
  // A server notices a vanished caller within 4 s: its streams end, and a worker may count as lost.
  set(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(absl::ToInt64Milliseconds(kKeepaliveTime)));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
      static_cast<int>(absl::ToInt64Milliseconds(kKeepaliveTimeout)));
  // Ping idle connections too: all that became half-open then end at once, not one after the other
  // when they are needed.
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

}  // namespace kaon::proto

#endif  // KAON_PROTO_GRPC_LIMITS_H_
