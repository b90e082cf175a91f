// The coordinator's connection to one shard: the control stream, which reopens whenever it ends,
// and the unary calls of the shard's ShardControl service. Owned by CoordinatorServer; any thread
// may call it.
#ifndef KAON_SERVER_COORDINATOR_SHARD_LINK_H_
#define KAON_SERVER_COORDINATOR_SHARD_LINK_H_

#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/backoff.h"
#include "client/transport/call_tracker.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/mutex.h"

namespace kaon::coordinator {

struct ShardLinkOptions {
  int shard = 0;
  // Only the stubs made from this channel share it.
  std::shared_ptr<grpc::Channel> channel;
};

// gRPC's threads run these callbacks, one at a time. A callback may call Send and must not block.
struct ShardLinkEvents {
  // `connected`: the shard answered on a new stream. `disconnected`: a stream ended, whether or not
  // the shard had answered on it.
  std::function<void()> connected;
  std::function<void(const absl::Status&)> disconnected;
  std::function<void(v1::ShardToCoordinator)> message;
};

class ShardLink {
 public:
  template <typename Response>
  using Callback = std::function<void(absl::StatusOr<Response>)>;

  ShardLink(ShardLinkOptions options, ShardLinkEvents events);
  ~ShardLink();
  ShardLink(const ShardLink&) = delete;
  ShardLink& operator=(const ShardLink&) = delete;

  // Opens the first stream; call it once. `probe` is the first message on every new stream, and its
  // answer shows that the shard is there. Unary calls may precede Start.
  void Start(v1::CoordinatorToShard probe);
  // Cancels everything. Returns once no callback runs or will run. Idempotent.
  void Shutdown();

  // Sends `message`, followed by the serialized fields of `more`. Drops it when no stream is open
  // or too many messages wait; the state machine sends it again.
  void Send(const v1::CoordinatorToShard& message, absl::string_view more = "");

  // Run `callback` exactly once, on a thread of gRPC. DEADLINE_EXCEEDED after `timeout`.
  void DescribeShard(const v1::DescribeShardRequest& request, absl::Duration timeout,
                     Callback<v1::DescribeShardResponse> callback);
  void ReadHistory(const v1::ReadHistoryRequest& request, absl::Duration timeout,
                   Callback<v1::ReadHistoryResponse> callback);
  void GetParameterStats(const v1::ShardParameterRequest& request, absl::Duration timeout,
                         Callback<v1::ParameterStats> callback);
  void GetParameterDiagnostics(const v1::ShardParameterRequest& request, absl::Duration timeout,
                               Callback<v1::ParameterDiagnostics> callback);
  void ReadParameterHistory(const v1::ShardParameterRequest& request, absl::Duration timeout,
                            Callback<v1::ParameterHistory> callback);
  void ReadSlice(const v1::ShardSliceRequest& request, absl::Duration timeout,
                 Callback<v1::TensorSlice> callback);

 private:
  class Stream;
  // Byte buffers let the caller serialize a message once for all shards.
  using ControlStub = grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::ShardToCoordinator>;
  struct UnaryContext {
    explicit UnaryContext(std::shared_ptr<client::CallTracker> tracker)
        : token(std::move(tracker)) {}

    const client::CallTracker::Token token;
    grpc::ClientContext context;
  };

  void OpenStream();
  void OnMessage(v1::ShardToCoordinator message);
  void OnStreamDone(const grpc::Status& status);
  // `method` starts the RPC on the stub that it receives.
  template <typename Request, typename Response, typename Method>
  void Call(const Request& request, absl::Duration timeout, Callback<Response> callback,
            Method method);
  // Returns null after Shutdown.
  std::shared_ptr<UnaryContext> BeginUnary(absl::Duration timeout);
  void EndUnary(const std::shared_ptr<UnaryContext>& call);

  const ShardLinkOptions options_;
  const ShardLinkEvents events_;
  const std::unique_ptr<v1::ShardControl::Stub> stub_;
  ControlStub control_stub_;
  // Tracks everything that holds the channel.
  const std::shared_ptr<client::CallTracker> calls_ = std::make_shared<client::CallTracker>();
  // Constant after Start.
  v1::CoordinatorToShard probe_;

  Mutex mu_;
  CondVar idle_;
  bool shutting_down_ ABSL_GUARDED_BY(mu_) = false;
  // Shared with a Send that is passing it a message.
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mu_);
  bool connected_ ABSL_GUARDED_BY(mu_) = false;
  // Fires when the next stream is due.
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mu_);
  // Alarms whose callback has not returned. A new alarm may be set while the last callback returns.
  int alarms_pending_ ABSL_GUARDED_BY(mu_) = 0;
  // Has jitter, because all coordinators lose a shard at the same moment.
  client::Backoff backoff_ ABSL_GUARDED_BY(mu_);
  // Status of the newest stream that ended.
  absl::Status last_end_ ABSL_GUARDED_BY(mu_);
  // Consecutive streams that ended before the shard sent a message.
  int failures_ ABSL_GUARDED_BY(mu_) = 0;
  // Shared with gRPC's callback of each call.
  std::set<std::shared_ptr<UnaryContext>> unary_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SHARD_LINK_H_
