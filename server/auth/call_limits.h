// Bounds the calls of one connection and of one identity from the moment that their headers have
// arrived. gRPC 1.51 enforces its limit of streams only after the peer has acknowledged SETTINGS.
// It takes memory for a call long before a handler begins. Thread-safe; shared by the credentials
// and the listener.
#ifndef KAON_SERVER_AUTH_CALL_LIMITS_H_
#define KAON_SERVER_AUTH_CALL_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"

namespace kaon::auth {

class CallLimits {
 public:
  // Twice the streams that a server announces. An honest peer has fewer open.
  static constexpr size_t kCallsOfConnection = 512;
  // A connection may have so many whatever its identity has.
  static constexpr size_t kFreeCalls = 4;
  static constexpr size_t kHeaderBytes = 64 << 10;
  // gRPC has about this for each call.
  static constexpr uint64_t kCallBytes = 16 << 10;

  explicit CallLimits(size_t calls_of_connection = kCallsOfConnection)
      : calls_of_connection_(calls_of_connection) {}

  // Gets a connection that goes on beyond its limit, and whether it has had a handler.
  using OnExcessive = std::function<void(uint64_t connection, bool had_handler)>;
  // Calls `end` on any thread that calls Arrive, again and again until the connection ends. Call it
  // before all others.
  void OnExcess(OnExcessive end) { end_ = std::move(end); }
  // Allows the calls of one identity a quarter of the memory. Nothing bounds them before that.
  void SetBudget(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the number of a new connection.
  uint64_t Connect(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Notes a call whose headers have arrived. UNAVAILABLE, naming the limit, if it must not go on: a
  // client tries again.
  absl::Status Arrive(uint64_t connection, const std::string& identity, uint64_t header_bytes,
                      absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Notes that the handler of a call has begun, or ended.
  void Begin(uint64_t connection) ABSL_LOCKS_EXCLUDED(mu_);
  void End(uint64_t connection) ABSL_LOCKS_EXCLUDED(mu_);
  // Call it when a connection with a handler is gone. One without is forgotten in time: its peer
  // stays unknown to the listener, which cuts it.
  void Forget(uint64_t connection) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Connection {
    std::string identity;
    // Calls that have arrived and whose handler has not begun. Those that end before that are
    // forgiven in time, as nobody tells of their end.
    size_t waiting = 0;
    // Calls that have a handler.
    size_t open = 0;
    size_t refused = 0;
    bool had_handler = false;
    absl::Time forgiven;
  };

  absl::Status Note(uint64_t number, const std::string& identity, uint64_t header_bytes,
                    absl::Time now, bool& end, bool& had_handler) ABSL_LOCKS_EXCLUDED(mu_);
  Connection& Find(uint64_t connection, const std::string& identity, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remove(const std::string& identity, size_t calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(std::map<uint64_t, Connection>::iterator found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forgive(Connection& connection, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t calls_of_connection_;
  OnExcessive end_;
  mutable Mutex mu_;
  size_t calls_of_identity_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<size_t>::max();
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Connection> connections_ ABSL_GUARDED_BY(mu_);
  // Waiting and open calls, if there are any.
  std::map<std::string, size_t> of_identity_ ABSL_GUARDED_BY(mu_);
  // Connections by their age.
  std::deque<std::pair<absl::Time, uint64_t>> young_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_CALL_LIMITS_H_
