// One Pull call over gRPC: writes the weights that PullReader reads, and waits for planned
// versions, and for its turn to write. Owns itself until the call ends. gRPC, the publisher and
// PullAdmission invoke callbacks on any thread.
#ifndef KAON_SERVER_SHARD_TRANSPORT_GRPC_PULL_STREAM_H_
#define KAON_SERVER_SHARD_TRANSPORT_GRPC_PULL_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <string>
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
#include "server/shard/transport/pull_admission.h"

namespace kaon::shard {

class PullStream : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                   public std::enable_shared_from_this<PullStream> {
 public:
  // They outlive all calls.
  struct Shard {
    ParameterPublisher& publisher;
    PullAdmission& admission;
    monitor::EventCounts& counts;
  };
  // Answers `request`, a serialized PullRequest, of the call that `context` is of.
  static PullStream* Start(const Shard& shard, grpc::CallbackServerContext& context,
                           const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  PullStream(const Shard& shard, grpc::CallbackServerContext& context, proto::Identity peer)
      : admission_(shard.admission),
        context_(context),
        counts_(shard.counts),
        reader_(shard.publisher, shard.counts, std::move(peer)) {}

  absl::Status Open(const PullAdmission::Source& source, const grpc::ByteBuffer& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Its turn to write has come.
  void OnTurn();
  // Ends the call, because others wait and its reader does not read.
  void Cut();
  // Writes the next message, waits for its first parameter, or ends the call.
  void Continue();
  absl::Status WriteChunksLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  PullAdmission& admission_;
  // Lives until OnDone.
  grpc::CallbackServerContext& context_;
  monitor::EventCounts& counts_;
  // Keeps this object alive until OnDone; pending callbacks of the publisher and the admission also
  // own it.
  std::shared_ptr<PullStream> self_;

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<PullAdmission::PullId> admitted_ ABSL_GUARDED_BY(mu_);
  // It may write a message.
  bool has_turn_ ABSL_GUARDED_BY(mu_) = false;
  PullReader reader_ ABSL_GUARDED_BY(mu_);
  grpc::ByteBuffer sent_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_GRPC_PULL_STREAM_H_
