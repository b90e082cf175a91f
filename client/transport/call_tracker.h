// Counts the gRPC calls of one client that still exist. A gRPC callback thread must not destroy the
// process's last grpc::Channel: that joins all callback threads, also the one that runs it. A call
// holds its channel, and a callback thread destroys the call. So the client waits here for its
// calls before it releases its channels. Shared by the client's Runtime and its calls; thread-safe.
#ifndef KAON_CLIENT_TRANSPORT_CALL_TRACKER_H_
#define KAON_CLIENT_TRANSPORT_CALL_TRACKER_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"

namespace kaon::client {

class CallTracker {
 public:
  // A call holds it as its first member, so that it is destroyed last.
  class Token {
   public:
    explicit Token(std::shared_ptr<CallTracker> tracker) : tracker_(std::move(tracker)) {
      tracker_->Add(1);
    }
    ~Token() { tracker_->Add(-1); }
    Token(const Token&) = delete;
    Token& operator=(const Token&) = delete;

   private:
    // Shared: after the last call the client may be destroyed.
    const std::shared_ptr<CallTracker> tracker_;
  };

  // Blocks until no token exists. Do not call it on a callback thread.
  void AwaitNone() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    while (num_calls_ > 0) changed_.Wait(mu_);
  }

 private:
  void Add(int calls) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    num_calls_ += calls;
    if (num_calls_ == 0) changed_.NotifyAll();
  }

  Mutex mu_;
  CondVar changed_;
  int num_calls_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_CALL_TRACKER_H_
