// One Pull call: reads a version of the weights chunk by chunk from ParameterPublisher, waiting for
// what is on its way. Owns itself until the call is done; callbacks of gRPC and of the publisher
// come from any thread.
#ifndef KAON_SERVER_SHARD_PULL_STREAM_H_
#define KAON_SERVER_SHARD_PULL_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/shard_data.pb.h"
#include "kernels/mutex.h"
#include "proto/identity.h"
#include "server/monitor/event_counts.h"
#include "server/shard/parameter_publisher.h"

namespace kaon::shard {

class PullStream : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                   public std::enable_shared_from_this<PullStream> {
 public:
  // Answers `request`, a serialized PullRequest. `publisher` and `counts` outlive the call.
  static PullStream* Start(ParameterPublisher& publisher, monitor::EventCounts& counts,
                           proto::Identity peer, const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  PullStream(ParameterPublisher& publisher, monitor::EventCounts& counts, proto::Identity peer)
      : publisher_(publisher), counts_(counts), peer_(std::move(peer)) {}

  absl::Status Check(const grpc::ByteBuffer& request);
  // Writes the next message, waits for what it begins with, or ends the call.
  void Continue();
  // False: this call will come back when the version is there.
  absl::StatusOr<bool> MakeReadableLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The chunks of the next message: one, or several of parameters that are there already and so
  // small that they fit into one message whole. They count as written.
  std::vector<v1::TensorChunk> NextChunksLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WriteChunksLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ParameterPublisher& publisher_;
  monitor::EventCounts& counts_;
  const proto::Identity peer_;
  // Keeps this object alive until OnDone, beside callbacks of the publisher that are under way.
  std::shared_ptr<PullStream> self_;

  // Constant once checked.
  v1::PullRequest request_;

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // Index into the request's parameters, and the first element of the next chunk.
  int next_parameter_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t next_element_ ABSL_GUARDED_BY(mu_) = 0;
  WaiterId waiter_ ABSL_GUARDED_BY(mu_) = 0;
  grpc::ByteBuffer sent_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PULL_STREAM_H_
