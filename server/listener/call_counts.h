// Counts of the calls of one connection, for the memory guard and the limits of calls. Shared by
// the connection's entry in the table and by its open calls, which may outlive the entry. Any
// thread.
#ifndef KAON_SERVER_LISTENER_CALL_COUNTS_H_
#define KAON_SERVER_LISTENER_CALL_COUNTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/auth/call_limits.h"

namespace kaon::listener {

struct CallCounts {
  // With `limits`, tells them when the connection and its calls are gone.
  explicit CallCounts(std::shared_ptr<auth::CallLimits> limits = nullptr)
      : limits(std::move(limits)) {}
  ~CallCounts() {
    if (number != 0) limits->Forget(number);
  }

  const std::shared_ptr<auth::CallLimits> limits;
  // The connection's number in `limits`; 0 until its first handler begins, and without limits.
  std::atomic<uint64_t> number = 0;
  // The others are fields of ConnectionUse.
  std::atomic<uint64_t> taken_bytes = 0;
  std::atomic<uint64_t> taken_messages = 0;
  std::atomic<uint64_t> open_calls = 0;
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_CALL_COUNTS_H_
