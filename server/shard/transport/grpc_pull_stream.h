// One Pull call over gRPC: writes the weights that PullReader reads, and waits for planned
// versions. Owns itself until the call ends. gRPC and the publisher invoke callbacks on any thread.
#ifndef KAON_SERVER_SHARD_TRANSPORT_GRPC_PULL_STREAM_H_
#define KAON_SERVER_SHARD_TRANSPORT_GRPC_PULL_STREAM_H_

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
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/pull_reader.h"

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
      : counts_(counts), reader_(publisher, counts, std::move(peer)) {}

  absl::Status Open(const grpc::ByteBuffer& request) ABSL_LOCKS_EXCLUDED(mu_);
  // Writes the next message, waits for its first parameter, or ends the call.
  void Continue();
  absl::Status WriteChunksLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  monitor::EventCounts& counts_;
  // Keeps this object alive until OnDone; pending callbacks of the publisher also own it.
  std::shared_ptr<PullStream> self_;

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  PullReader reader_ ABSL_GUARDED_BY(mu_);
  grpc::ByteBuffer sent_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_GRPC_PULL_STREAM_H_
