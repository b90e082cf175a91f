// Ends the connections whose certificate a PeerPolicy no longer accepts, twice a second, on a
// thread of its own: lists may be on slow disks. Owned by Listener.
#ifndef KAON_SERVER_LISTENER_POLICY_THREAD_H_
#define KAON_SERVER_LISTENER_POLICY_THREAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "kernels/mutex.h"
#include "server/auth/peer_policy.h"
#include "server/listener/connection_table.h"

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
  ~PolicyThread();

 private:
  void Run();
  void Look();

  const Options options_;
  Mutex mu_;
  CondVar stop_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_POLICY_THREAD_H_
