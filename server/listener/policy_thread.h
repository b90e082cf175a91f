// Ends the connections whose certificate a PeerPolicy no longer accepts, twice a second, on a
// thread of its own: lists may be on slow disks. Owned by Listener.
#ifndef KAON_SERVER_LISTENER_POLICY_THREAD_H_
#define KAON_SERVER_LISTENER_POLICY_THREAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/auth/peer_policy.h"
#include "server/listener/connection_table.h"
#include "server/listener/repeating_thread.h"

namespace kaon::listener {

class PolicyThread {
 public:
  // Functions are called on this thread, without a lock held.
  struct Options {
    std::shared_ptr<auth::PeerPolicy> policy;
    std::function<std::vector<CertifiedConnection>()> connections;
    // Ends those that are still open. Returns their number.
    std::function<size_t(const std::vector<uint64_t>&)> end;
    // Returns the time of the calendar, by which certificates expire.
    std::function<absl::Time()> now;
  };

  explicit PolicyThread(Options options);

 private:
  // Looks once. Returns the time until the next look.
  absl::Duration Look();

  const Options options_;
  // Last member: it uses everything above.
  RepeatingThread thread_;
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_POLICY_THREAD_H_
