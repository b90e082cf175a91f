// One push whose tensors on a device travel over NCCL. It passes on what its source gives to a push
// over gRPC: headers of what the lane sends, and everything else as it is. Without a session, it
// copies tensors to host memory. Shared by its caller, its stream and its lane; any thread.
#ifndef KAON_CLIENT_TRANSPORT_NCCL_PUSH_H_
#define KAON_CLIENT_TRANSPORT_NCCL_PUSH_H_

#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/transport/call_tracker.h"
#include "client/transport/nccl_lane.h"
#include "client/transport/shard_channel.h"
#include "client/transport/transfer_counters.h"
#include "kernels/mutex.h"
#include "kernels/nccl/device_link.h"

namespace kaon::client {

class NcclPush : public PushStream,
                 public PushSource,
                 public NcclLaneUser,
                 public std::enable_shared_from_this<NcclPush> {
 public:
  struct Options {
    std::shared_ptr<CallTracker> tracker;
    // Shared with the channel.
    std::shared_ptr<NcclLane> lane;
    std::shared_ptr<kernels::DeviceLink> link;
    std::shared_ptr<TransferCounters> counters;
    // A tensor on a device fails the push if there is no session.
    bool required = false;
  };

  NcclPush(Options options, std::shared_ptr<PushSource> source)
      : token_(options.tracker), options_(std::move(options)), source_(std::move(source)) {}
  // Call it once.
  void Start(ShardChannel& network, const v1::PushOpen& open);

  // PushStream.
  void Resume() override;
  void Cancel() override;

  // PushSource, for the stream over the network.
  absl::Status OnOpened(const v1::PushOpened& opened) override;
  void OnCredit(uint64_t bytes) override;
  PushMessage Next() override;
  void OnDone(const absl::Status& status) override;

  // NcclLaneUser.
  void OnTurn() override { Resume(); }
  void OnSessionEnded(const absl::Status& why) override { Fail(why); }

 private:
  // Moves a message of the source to `messages_`, divided by where the tensors are.
  void Divide(LeasedChunks message);
  PushMessage SendOnDevice();
  // Returns whether the tensors of the front message are ready.
  bool IsFrontReady() const;
  // Copies the payloads to host memory.
  LeasedChunks CopyOut(const LeasedChunks& message) const;
  // Ends the push with this error.
  void Fail(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<PushStream> stream() const ABSL_LOCKS_EXCLUDED(mu_);

  // First member: destroyed last, so the channel outlives the lane's use of this push.
  const CallTracker::Token token_;
  const Options options_;

  // Used by Next, whose calls never overlap, and then by OnDone.
  std::shared_ptr<PushSource> source_;
  std::deque<LeasedChunks> messages_;

  mutable Mutex mu_;
  // Null before Start has it and after OnDone.
  std::shared_ptr<PushStream> stream_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_NCCL_PUSH_H_
