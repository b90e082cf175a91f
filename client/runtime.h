// Holds what all parts of one Client share: options, event loop, connections and counters. Also
// lists the operations that must end before the client can be destroyed. The public objects share
// it: they stay valid after their Client is destroyed, but every call fails. Thread-safe.
#ifndef KAON_CLIENT_RUNTIME_H_
#define KAON_CLIENT_RUNTIME_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/kaon/client_options.h"
#include "client/transport/call_tracker.h"
#include "client/transport/coordinator_client.h"
#include "client/transport/event_loop.h"
#include "client/transport/shard_channel.h"
#include "client/transport/transfer_counters.h"
#include "kernels/mutex.h"
#include "kernels/nccl/abort_queue.h"
#include "kernels/nccl/device_link.h"

namespace kaon::client {

class Runtime {
 public:
  // INVALID_ARGUMENT names the bad option. Other errors are those of CheckCertificates and
  // CreateChannel.
  static absl::StatusOr<std::shared_ptr<Runtime>> Create(const ClientOptions& options);

  explicit Runtime(const ClientOptions& options);
  // Sends tensors of a device over this link, in place of the one that ClientOptions::nccl names.
  // Call it before the first step.
  void UseLink(std::shared_ptr<kernels::DeviceLink> link);

  // Returns FAILED_PRECONDITION in a child of fork() and after Shutdown.
  absl::Status CheckUsable() const ABSL_LOCKS_EXCLUDED(mu_);
  bool InForkedChild() const;

  // Adds an operation and sets `operation` to its number before `cancel` can run. Shutdown calls
  // `cancel` on the loop and waits until the operation is removed. Returns false after Shutdown.
  bool AddOperation(std::function<void()> cancel, uint64_t& operation) ABSL_LOCKS_EXCLUDED(mu_);
  void RemoveOperation(uint64_t operation) ABSL_LOCKS_EXCLUDED(mu_);

  // Cancels all operations, waits until they and their calls have ended, and stops the loop. Do not
  // call it on the loop.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns INVALID_ARGUMENT if tensors on that device cannot be read, and why. -1: host memory.
  absl::Status CheckDevice(int device) const;

  // Returns the connection to a shard; the first use creates it.
  absl::StatusOr<std::shared_ptr<ShardChannel>> ShardChannelOf(const std::string& address)
      ABSL_LOCKS_EXCLUDED(mu_);

  const ClientOptions& options() const { return options_; }
  absl::Duration call_deadline() const { return absl::FromChrono(options_.call_deadline); }
  absl::Duration step_deadline() const { return absl::FromChrono(options_.step_deadline); }
  EventLoop& loop() { return loop_; }
  CoordinatorClient& coordinators() { return coordinators_; }
  const std::shared_ptr<TransferCounters>& counters() const { return counters_; }
  // Returns the time limit of one try of a control call: at most 5 s, so that a silent coordinator
  // leaves time for another one.
  absl::Duration try_timeout() const;

 private:
  const ClientOptions options_;
  const pid_t process_;
  const std::shared_ptr<TransferCounters> counters_;
  // Shared with the calls.
  const std::shared_ptr<CallTracker> calls_;
  CoordinatorClient coordinators_;
  // Why tensors on a device cannot be read; OK if `link_` reads them.
  absl::Status no_link_;
  // Both are null without a link. Channels and aborts share them.
  std::shared_ptr<kernels::DeviceLink> link_;
  std::shared_ptr<kernels::AbortQueue> aborts_;

  mutable Mutex mu_;
  CondVar operation_ended_;
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_operation_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, std::function<void()>> operations_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<ShardChannel>> shard_channels_ ABSL_GUARDED_BY(mu_);

  // Last member: the loop's tasks use everything above.
  EventLoop loop_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_RUNTIME_H_
