// Counts what a client sent, received and retried. Shared by all parts of one client; any thread.
#ifndef KAON_CLIENT_TRANSPORT_TRANSFER_COUNTERS_H_
#define KAON_CLIENT_TRANSPORT_TRANSFER_COUNTERS_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "proto/grpc_status.h"

namespace kaon::client {

struct TransferCounters {
  // Payload bytes, including resent ones.
  std::atomic<uint64_t> push_bytes{0};
  std::atomic<uint64_t> pull_bytes{0};
  // Payload bytes of both that passed through shared memory.
  std::atomic<uint64_t> shm_bytes{0};
  // Payload bytes that left or reached a device over NCCL.
  std::atomic<uint64_t> nccl_bytes{0};
  // Calls that had no session over shared memory and used the network.
  std::atomic<uint64_t> shm_refusals{0};
  // Retried calls and streams; see NoteRetry.
  std::atomic<uint64_t> retries{0};
  // 16-bit elements that arrived as infinity.
  std::atomic<uint64_t> infinite_pulled{0};

  // Counts a call that failed with `status`. Does not count a server that says "not yet"
  // (UNAVAILABLE) or "not here" (FAILED_PRECONDITION): both happen in healthy jobs.
  void NoteRetry(const absl::Status& status) {
    const bool is_healthy = absl::IsFailedPrecondition(status) ||
                            (absl::IsUnavailable(status) && !proto::IsConnectionLost(status));
    if (!is_healthy) ++retries;
  }
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_TRANSFER_COUNTERS_H_
