// One worker's Push call over gRPC: connects gRPC reads and writes with a PushIntake. Owns itself
// until the call ends. gRPC and the accumulator invoke callbacks on any thread.
#ifndef KAON_SERVER_SHARD_TRANSPORT_GRPC_PUSH_STREAM_H_
#define KAON_SERVER_SHARD_TRANSPORT_GRPC_PUSH_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "kaon/v1/shard_data.pb.h"
#include "kernels/mutex.h"
#include "proto/identity.h"
#include "proto/tensor_stream.h"
#include "server/monitor/event_counts.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "server/shard/gradients/push_intake.h"

namespace kaon::shard {

class PushStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                   public std::enable_shared_from_this<PushStream> {
 public:
  // Starts reading. `accumulator` and `counts` outlive the call.
  static PushStream* Start(GradientAccumulator& accumulator, monitor::EventCounts& counts,
                           proto::Identity peer);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  PushStream(GradientAccumulator& accumulator, monitor::EventCounts& counts, proto::Identity peer);

  absl::Status Take(proto::Slices slices);
  void AddCredit(uint64_t bytes);
  void End(const absl::Status& status);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Keeps this object alive until OnDone; pending callbacks of the accumulator also own it.
  std::shared_ptr<PushStream> self_;

  // Owned by the read in flight.
  grpc::ByteBuffer received_;
  PushIntake intake_;

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  // Responses still to be written, in this order.
  std::optional<v1::PushOpened> opened_ ABSL_GUARDED_BY(mu_);
  uint64_t credit_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ByteBuffer sent_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_GRPC_PUSH_STREAM_H_
