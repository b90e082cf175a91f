// Holds one session with a shard over shared memory, and the thread that runs its calls one at a
// time. Owned by its ShmShardChannel; any thread may call it.
#ifndef KAON_CLIENT_TRANSPORT_SHM_LANE_H_
#define KAON_CLIENT_TRANSPORT_SHM_LANE_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/transport/shm_call.h"
#include "kernels/mutex.h"
#include "proto/shm_link.h"

namespace kaon::client {

class ShmLane {
 public:
  // Opens a session; may take seconds.
  using Open = std::function<absl::StatusOr<std::unique_ptr<proto::ShmLink>>()>;
  // Runs or ends a call for which there is no session.
  using Refused = std::function<void(ShmCall& call, const absl::Status& why)>;

  ShmLane(Open open, Refused refused);
  // Waits for the running call.
  ~ShmLane();

  // Starts a call. Returns false if another call is running. Also returns false if there is no
  // session yet and `may_open` is not set.
  bool Start(const std::shared_ptr<ShmCall>& call, bool may_open) ABSL_LOCKS_EXCLUDED(mu_);
  // State after the last call.
  bool has_session() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Runs the call in the present session or a new one; otherwise returns why there is none.
  absl::Status CarryOut(ShmCall& call);

  const Open open_;
  const Refused refused_;

  // Used on the thread. Replaced when the session breaks.
  std::unique_ptr<proto::ShmLink> link_;
  uint32_t number_ = 0;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool has_session_ ABSL_GUARDED_BY(mu_) = false;
  // Shared with its caller.
  std::shared_ptr<ShmCall> next_ ABSL_GUARDED_BY(mu_);

  // Last member: the thread uses everything above.
  std::thread thread_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_SHM_LANE_H_
