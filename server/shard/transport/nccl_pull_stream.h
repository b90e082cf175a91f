// One Pull call whose payloads travel over NCCL: sends the weights that PullReader reads, and
// announces each transfer on the call. It has as many transfers under way as the session has slots.
// Owns itself until the call ends. gRPC, the publisher and the endpoint invoke callbacks on any
// thread.
#ifndef KAON_SERVER_SHARD_TRANSPORT_NCCL_PULL_STREAM_H_
#define KAON_SERVER_SHARD_TRANSPORT_NCCL_PULL_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "kernels/mutex.h"
#include "proto/identity.h"
#include "server/monitor/event_counts.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/pull_reader.h"
#include "server/shard/transport/nccl_endpoint.h"
#include "server/shard/transport/pull_admission.h"

namespace kaon::shard {

class NcclPullStream : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                       public std::enable_shared_from_this<NcclPullStream> {
 public:
  // They outlive all calls. Null `nccl`: every call is refused.
  struct Shard {
    ParameterPublisher& publisher;
    PullAdmission& admission;
    monitor::EventCounts& counts;
    NcclEndpoint* nccl = nullptr;
  };
  // Answers `request`, a serialized NcclPullRequest, of the call that `context` is of.
  static NcclPullStream* Start(const Shard& shard, grpc::CallbackServerContext& context,
                               const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  NcclPullStream(const Shard& shard, proto::Identity peer)
      : shard_(shard), peer_(peer), reader_(shard.publisher, shard.counts, std::move(peer)) {}

  absl::Status Open(const PullAdmission::Source& source, const grpc::ByteBuffer& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Sends the next message, waits for a slot or a parameter, or ends the call.
  void Continue() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ContinueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status SendLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnReadable() ABSL_LOCKS_EXCLUDED(mu_);
  void OnSent(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Shard shard_;
  const proto::Identity peer_;
  // Keeps this object alive until OnDone; callbacks that are pending also own it.
  std::shared_ptr<NcclPullStream> self_;

  Mutex mu_;
  NcclEndpoint::Sender worker_ ABSL_GUARDED_BY(mu_);
  uint64_t session_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // The publisher calls OnReadable.
  bool waits_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  // The session has carried some of this pull.
  bool has_sent_ ABSL_GUARDED_BY(mu_) = false;
  // Transfers under way.
  uint32_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<PullAdmission::PullId> admitted_ ABSL_GUARDED_BY(mu_);
  PullReader reader_ ABSL_GUARDED_BY(mu_);
  grpc::ByteBuffer announced_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_NCCL_PULL_STREAM_H_
