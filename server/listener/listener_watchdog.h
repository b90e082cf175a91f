// Connects to a port of this process every few seconds, as an unknown client. Calls `on_deaf` with
// the reason after the port has not answered several times in a row. The first byte of a handshake
// is an answer. The end of the connection is one too, because only a live listener ends
// connections. Owned by Listener.
#ifndef KAON_SERVER_LISTENER_LISTENER_WATCHDOG_H_
#define KAON_SERVER_LISTENER_LISTENER_WATCHDOG_H_

#include <sys/socket.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/listener/repeating_thread.h"

namespace kaon::listener {

// Connects to `address` and waits for an answer. DEADLINE_EXCEEDED without an answer; otherwise the
// reason why there is no connection.
absl::Status ProbePort(const sockaddr_storage& address, bool tls, absl::Duration timeout);

class ListenerWatchdog {
 public:
  struct Options {
    sockaddr_storage address = {};
    bool tls = false;
    absl::Duration interval = absl::Seconds(10);
    // Shorter than Limits::unknown_lifetime, after which a connection ends even if nobody listens.
    absl::Duration timeout = absl::Seconds(5);
    // Consecutive failures. A process that was suspended for a while fails one.
    int failures = 3;
    // The default logs the reason and ends the process; tests replace it.
    std::function<void(const std::string& reason)> on_deaf;
  };

  explicit ListenerWatchdog(Options options);

 private:
  // Looks once. Returns the time until the next look.
  absl::Duration Look();

  const Options options_;
  int failures_ = 0;
  // Last member: it uses everything above.
  RepeatingThread thread_;
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_LISTENER_WATCHDOG_H_
