// The data plane as the client sees it: pushes and pulls of one shard over some transport. The gRPC
// implementation is grpc_shard_channel.h. Channels are owned by the client's Runtime, shared with
// the calls under way; all methods may be called from any thread.
#ifndef KAON_CLIENT_TRANSPORT_SHARD_CHANNEL_H_
#define KAON_CLIENT_TRANSPORT_SHARD_CHANNEL_H_

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/kaon/tensor.h"
#include "client/transport/push_queue.h"
#include "kaon/v1/shard_data.pb.h"

namespace kaon::client {

// The chunks of one message, at least one, and what keeps their memory alive: the transport holds
// `lease` until it has let go of the payloads, which it sends from where they lie.
struct LeasedChunks {
  std::vector<ChunkToSend> chunks;
  std::shared_ptr<const void> lease;
};

// What a push sends next: nothing for now, chunks, or the finish.
using PushMessage = std::variant<std::monostate, LeasedChunks, v1::PushFinish>;

// The sender's side of one push stream. Called from the transport's threads, and from those that
// call PushStream::Resume; calls may overlap, but Next does not with itself.
class PushSource {
 public:
  virtual ~PushSource() = default;
  // The shard's first answer. An error ends the stream.
  virtual absl::Status OnOpened(const v1::PushOpened& opened) = 0;
  virtual void OnCredit(uint64_t bytes) = 0;
  virtual PushMessage Next() = 0;
  // Last call. OK means that the shard confirmed the finish.
  virtual void OnDone(const absl::Status& status) = 0;
};

class PushStream {
 public:
  virtual ~PushStream() = default;
  // Asks the source again after it had nothing to send.
  virtual void Resume() = 0;
  // OnDone follows soon.
  virtual void Cancel() = 0;
};

// A pull under way. Cancel makes `done` follow soon.
class PullStream {
 public:
  virtual ~PullStream() = default;
  virtual void Cancel() = 0;
};

struct PullOptions {
  v1::PullRequest request;
  // As many as request.parameter_ids, in that order, all of request.dtype.
  std::vector<MutableTensorView> targets;
  // Of the transport's own accord: DEADLINE_EXCEEDED.
  absl::Duration timeout = absl::InfiniteDuration();
  // Payload bytes as they arrive; from several threads at once where the pull is divided.
  std::function<void(uint64_t)> on_bytes;
  // Elements of 16 bits that arrived as infinity, by parameter; called as on_bytes.
  std::function<void(uint32_t parameter_id, uint64_t elements)> on_infinite;
  // Once, from a thread of the transport, when the targets are complete (OK) or will not be written
  // any more. DATA_LOSS for a checksum that does not match.
  std::function<void(const absl::Status&)> done;
};

class ShardChannel {
 public:
  virtual ~ShardChannel() = default;
  // `open` is sent first.
  virtual std::shared_ptr<PushStream> Push(const v1::PushOpen& open,
                                           std::shared_ptr<PushSource> source) = 0;
  virtual std::shared_ptr<PullStream> Pull(PullOptions options) = 0;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_SHARD_CHANNEL_H_
