// One coordinator's control stream: connects gRPC reads and writes with the StepLoop. Owns itself
// until the call ends. gRPC and the loop invoke callbacks on any thread.
#ifndef KAON_SERVER_SHARD_TRANSPORT_CONTROL_STREAM_H_
#define KAON_SERVER_SHARD_TRANSPORT_CONTROL_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/mutex.h"
#include "server/shard/step_loop.h"
#include "server/shard/transport/control_backlog.h"

namespace kaon::shard {

// Maximum number of answers that wait for a slow coordinator. Beyond it, the stream ends with
// RESOURCE_EXHAUSTED.
inline constexpr size_t kMaxWaitingAnswers = 1000;

class ControlStream
    : public grpc::ServerBidiReactor<v1::CoordinatorToShard, v1::ShardToCoordinator>,
      public std::enable_shared_from_this<ControlStream> {
 public:
  // Starts reading. `loop` outlives the call. `peer` names the caller, for logs.
  static ControlStream* Start(StepLoop& loop, std::string peer);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit ControlStream(StepLoop& loop) : loop_(loop) {}

  void Read();
  void Work(v1::CoordinatorToShard message);
  void OnWorkedOff();
  void Send(v1::ShardToCoordinator message);
  void End(const absl::Status& status);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  StepLoop& loop_;
  StreamId stream_ = 0;
  // Keeps this object alive until OnDone; pending calls of the loop also own it.
  std::shared_ptr<ControlStream> self_;
  // Owned by the read in flight.
  v1::CoordinatorToShard received_;

  Mutex mu_;
  ControlBacklog backlog_ ABSL_GUARDED_BY(mu_);
  // The peer sends no more messages.
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  // If `writing_`, the front answer is being written.
  std::deque<v1::ShardToCoordinator> answers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_CONTROL_STREAM_H_
