// Counts of the calls of one connection, for the memory guard. Shared by the connection's entry in
// the table and by its open calls, which may outlive the entry. Any thread.
#ifndef KAON_SERVER_LISTENER_CALL_COUNTS_H_
#define KAON_SERVER_LISTENER_CALL_COUNTS_H_

#include <atomic>
#include <cstdint>

namespace kaon::listener {

// The fields are those of ConnectionUse.
struct CallCounts {
  std::atomic<uint64_t> taken_bytes = 0;
  std::atomic<uint64_t> taken_messages = 0;
  std::atomic<uint64_t> open_calls = 0;
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_CALL_COUNTS_H_
