// Connects to a port of this process every few seconds, as a stranger would. Calls `on_deaf` with
// the reason once the port has not answered several times in a row. An answer is the first byte of
// a handshake, or the end of the connection, which also shows that the server listens. Owned by
// Listener.
#ifndef KAON_SERVER_LISTENER_LISTENER_WATCHDOG_H_
#define KAON_SERVER_LISTENER_LISTENER_WATCHDOG_H_

#include <sys/socket.h>

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"

namespace kaon::listener {

// Connects to `address` and waits for an answer. DEADLINE_EXCEEDED if none comes within `timeout`;
// otherwise an error says why there is no connection.
absl::Status ProbePort(const sockaddr_storage& address, bool tls, absl::Duration timeout);

class ListenerWatchdog {
 public:
  struct Options {
    sockaddr_storage address = {};
    bool tls = false;
    absl::Duration interval = absl::Seconds(10);
    // Must be shorter than Limits::unknown_lifetime, after which the connection ends even if
    // nothing answers.
    absl::Duration timeout = absl::Seconds(5);
    // Number of failures in a row. A process that was stopped for a while fails one probe.
    int failures = 3;
    // If empty, the watchdog logs the reason and ends the process. Tests set another.
    std::function<void(const std::string& reason)> on_deaf;
  };

  explicit ListenerWatchdog(Options options);
  ~ListenerWatchdog();

 private:
  void Run();

  const Options options_;
  Mutex mu_;
  CondVar stop_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_LISTENER_WATCHDOG_H_
