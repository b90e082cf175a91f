// Bugs of gradients over NCCL that can be built in, one at a time, to verify that tests find each
// of them (tests/nccl_mutation.sh). KAON_NCCL_BUG is the number of the bug in this build. In every
// product it is 0, and Has() is a constant that leaves no trace. A bug is one `Has(...)` in one
// place, in the file that its line names. Constants only; any thread.
#ifndef KAON_KERNELS_NCCL_CHANNEL_BUG_H_
#define KAON_KERNELS_NCCL_CHANNEL_BUG_H_

#ifndef KAON_NCCL_BUG
#define KAON_NCCL_BUG 0
#endif

namespace kaon::kernels {

// tests/nccl_mutation.sh reads this list: one line each, `kName = number,  // where it is`.
// clang-format off
enum class ChannelBug {
  // A transfer counts as done before its event.
  kDoneBeforeItsEvent = 1,  // kernels/nccl/link_session
  // Transfers are reported in the order in which they end.
  kDoneOutOfOrder = 2,  // kernels/nccl/link_session
  // A transfer that never ends is awaited forever.
  kNoDeadline = 3,  // kernels/nccl/link_session
  // A communicator is aborted without a revoke.
  kNotRevoked = 4,  // kernels/nccl/link_session
  // Communicators are aborted one by one.
  kAbortedOneByOne = 5,  // kernels/nccl/abort_queue
  // The shard folds bytes with another digest than announced.
  kDigestIgnored = 6,  // server/shard/transport/nccl_endpoint
  // The shard accepts any number of a transfer.
  kSequenceIgnored = 7,  // server/shard/transport/nccl_endpoint
  // A worker uses another worker's session.
  kSessionOfOtherRank = 8,  // server/shard/transport/nccl_endpoint
  // The shard frees slots that NCCL may still write to.
  kFreedBeforeTheAbort = 9,  // server/shard/transport/nccl_endpoint
  // The shard answers a finish while payloads are on their way.
  kFinishDoesNotWait = 10,  // server/shard/transport/grpc_push_stream
  // The shard reads on while all slots are in use.
  kReadsBeyondTheSlots = 11,  // server/shard/transport/grpc_push_stream
  // A worker that names another one's session ends it.
  kStrangerEndsSession = 12,  // server/shard/transport/grpc_push_stream
  // The shard posts receives for headers that it has not checked.
  kHeaderNotChecked = 13,  // server/shard/gradients/push_intake
  // The worker writes to a slot that is still being sent.
  kSlotReusedWhileSent = 14,  // client/transport/nccl_lane
  // The worker keeps a session after a push that did not finish.
  kSessionKeptAfterFailure = 15,  // client/transport/nccl_lane
  // The worker reads a tensor before its event.
  kEventIgnored = 16,  // client/transport/nccl_lane
  // The worker takes weights with another digest than announced.
  kPulledDigestIgnored = 17,  // client/transport/nccl_pull
  // The worker takes a transfer of weights whatever number it has.
  kPulledSequenceIgnored = 18,  // client/transport/nccl_lane
  // A pull ends while weights are on their way.
  kPullDoesNotWait = 19,  // client/transport/nccl_pull
  // The shard keeps a session after a pull that ended early.
  kSessionKeptAfterPull = 20,  // server/shard/transport/nccl_pull_stream
  // The shard posts a receive to a slot that it still folds from.
  kSlotFreeBeforeItIsTaken = 21,  // server/shard/transport/nccl_endpoint
};
// clang-format on

constexpr bool Has(ChannelBug bug) { return static_cast<int>(bug) == KAON_NCCL_BUG; }

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_NCCL_CHANNEL_BUG_H_
