// One pull to targets on a device. The shard announces each transfer on a call over gRPC, and sends
// its payload over a session of NCCL. The pull copies a payload to its target once its digest
// agrees. Without a session, and after any failure, it pulls over the network to host memory, and
// copies that to the device. Shared by its caller, its call and its lane; any thread.
#ifndef KAON_CLIENT_TRANSPORT_NCCL_PULL_H_
#define KAON_CLIENT_TRANSPORT_NCCL_PULL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/transport/call_tracker.h"
#include "client/transport/nccl_lane.h"
#include "client/transport/pull_assembler.h"
#include "client/transport/shard_channel.h"
#include "client/transport/transfer_counters.h"
#include "kaon/v1/shard_nccl.grpc.pb.h"
#include "kernels/mutex.h"
#include "kernels/nccl/device_link.h"

namespace kaon::client {

// The lane of the pulls of one rank. One pull at a time has it, and others use the network: they
// must not wait for a pull that waits for its version.
struct NcclPullLane {
  explicit NcclPullLane(NcclLane::Options options) : lane(std::move(options)) {}

  std::atomic<bool> taken = false;
  NcclLane lane;
};

class NcclPull : public PullStream,
                 public NcclLaneUser,
                 public grpc::ClientReadReactor<v1::NcclPullResponse>,
                 public std::enable_shared_from_this<NcclPull> {
 public:
  struct Options {
    std::shared_ptr<CallTracker> tracker;
    std::shared_ptr<kernels::DeviceLink> link;
    // Shared with the channel; null without a session of pushes.
    std::shared_ptr<NcclPullLane> lane;
    // The lane has a session of this rank.
    uint32_t rank = 0;
    std::shared_ptr<grpc::Channel> connection;
    std::shared_ptr<ShardChannel> network;
    std::shared_ptr<TransferCounters> counters;
  };

  // All targets are on the link's device.
  NcclPull(Options options, PullOptions pull);
  // Call it once.
  void Start();

  // PullStream.
  void Cancel() override;

  // ClientReadReactor.
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  // NcclLaneUser.
  void OnTurn() override { Ask(); }
  void OnSessionEnded(const absl::Status& why) override;

 private:
  // Asks the lane for its turn, and begins once it has it.
  void Ask() ABSL_LOCKS_EXCLUDED(mu_);
  void Begin() ABSL_LOCKS_EXCLUDED(mu_);
  // Posts receives for what was announced, as far as the session has slots.
  void PostLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes a payload, on the lane's thread.
  void OnArrived(const v1::NcclPullResponse& announced, kernels::ConstRegion payload)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Posts the next receive, after OnArrived.
  void OnSlotFree() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Write(const v1::NcclPullResponse& announced, kernels::ConstRegion payload);
  void FailLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the part over NCCL if nothing of it is under way any more.
  void EndIfOver() ABSL_LOCKS_EXCLUDED(mu_);
  void End(const absl::Status& result) ABSL_LOCKS_EXCLUDED(mu_);
  // Tells the result of the pull.
  void Finish(const absl::Status& result) ABSL_LOCKS_EXCLUDED(mu_);
  void UseNetwork() ABSL_LOCKS_EXCLUDED(mu_);

  // First member: destroyed last, so the channel outlives the lane's use of this pull.
  const CallTracker::Token token_;
  const Options options_;
  const PullOptions pull_;
  const absl::Time deadline_;
  grpc::ClientContext context_;
  v1::NcclPullRequest request_;
  // Read into by gRPC, whose reactions do not overlap.
  v1::NcclPullResponse in_;
  // Used on the lane's thread.
  PullAssembler assembler_;

  Mutex mu_;
  // The pull holds itself until its end.
  std::shared_ptr<NcclPull> self_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // The call over gRPC has begun; it is over.
  bool begun_ ABSL_GUARDED_BY(mu_) = false;
  bool call_done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status call_status_ ABSL_GUARDED_BY(mu_);
  // First failure outside the call.
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  // The part over NCCL is over.
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // Announced, without a receive yet.
  std::deque<v1::NcclPullResponse> announced_ ABSL_GUARDED_BY(mu_);
  size_t slots_ ABSL_GUARDED_BY(mu_) = 0;
  // Receives that have a slot.
  size_t posted_ ABSL_GUARDED_BY(mu_) = 0;
  // The lane's thread writes to a target.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  // The pull over the network, if it is under way; shared with its transport.
  std::shared_ptr<PullStream> network_stream_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_NCCL_PULL_H_
