// One worker's Push call over gRPC: connects gRPC reads and writes with a PushIntake. Payloads that
// travel over NCCL come from an NcclEndpoint; their chunks are added in the order of their headers.
// Owns itself until the call ends. gRPC, accumulator and endpoint invoke callbacks on any thread.
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
#include "server/shard/transport/nccl_endpoint.h"

namespace kaon::shard {

class PushStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                   public std::enable_shared_from_this<PushStream> {
 public:
  // Starts reading. `accumulator`, `counts` and `nccl` outlive the call. Null: no NCCL.
  static PushStream* Start(GradientAccumulator& accumulator, monitor::EventCounts& counts,
                           NcclEndpoint* nccl, proto::Identity peer);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  PushStream(GradientAccumulator& accumulator, monitor::EventCounts& counts, NcclEndpoint* nccl,
             proto::Identity peer);

  // Processes `received_`, which no read changes meanwhile, and goes on.
  void TakeReceived();
  // Both return false if the message is a finish that waits for payloads.
  absl::StatusOr<bool> TakeMessage();
  absl::StatusOr<bool> Take(proto::Slices slices);
  // Posts the receive of an announced payload.
  absl::Status Await(v1::PushRequest announced);
  // Called once a payload is added, or has failed.
  void OnPayload(const absl::Status& status);
  // Ends the call, or reads the next message unless every slot is in use.
  void GoOn(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void AddCredit(uint64_t bytes);
  void End(const absl::Status& status);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Keeps this object alive until OnDone; pending callbacks of the accumulator also own it.
  std::shared_ptr<PushStream> self_;

  NcclEndpoint* const nccl_;

  // Owned by the read in flight.
  grpc::ByteBuffer received_;
  PushIntake intake_;

  Mutex mu_;
  // Use of `received_`.
  enum class Reading : uint8_t {
    kReads,
    // The message is being processed.
    kTakes,
    // All slots are in use.
    kPauses,
    // The message is a finish, and waits for payloads.
    kHolds,
  };
  Reading reading_ ABSL_GUARDED_BY(mu_) = Reading::kReads;
  // Announced payloads that were not added yet, failed ones included.
  uint32_t awaited_ ABSL_GUARDED_BY(mu_) = 0;
  // Session of the last announcement; 0: none.
  uint64_t session_ ABSL_GUARDED_BY(mu_) = 0;
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
