// Interface of the data plane: pushes and pulls of one shard over some transport.
// grpc_shard_channel.h implements it over gRPC. The client's Runtime owns the channels and shares
// them with open calls; all methods may be called on any thread.
#ifndef KAON_CLIENT_TRANSPORT_SHARD_CHANNEL_H_
#define KAON_CLIENT_TRANSPORT_SHARD_CHANNEL_H_

#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/kaon/tensor.h"
#include "client/transport/push_queue.h"
#include "kaon/v1/shard_data.pb.h"

namespace kaon::client {

// The chunks of one message, one or more, and the lease on their memory. The transport sends the
// payloads in place and holds `lease` until it has released them.
struct LeasedChunks {
  std::vector<ChunkToSend> chunks;
  std::shared_ptr<const void> lease;
  // If set, only the headers of `chunks` are sent: their payloads travel over NCCL. Only the gRPC
  // channel accepts it.
  std::optional<v1::NcclTransfer> nccl = std::nullopt;
};

// Next message of a push: nothing for now, chunks, or the finish.
using PushMessage = std::variant<std::monostate, LeasedChunks, v1::PushFinish>;

// The sender's side of one push stream. Called on the transport's threads and on those that call
// PushStream::Resume. Calls may overlap, but two calls of Next never do.
class PushSource {
 public:
  virtual ~PushSource() = default;
  // Takes the shard's first answer. An error ends the stream.
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

// An open pull. After Cancel, `done` follows soon.
class PullStream {
 public:
  virtual ~PullStream() = default;
  virtual void Cancel() = 0;
};

struct PullOptions {
  v1::PullRequest request;
  // One target for each of request.parameter_ids, in that order; all have request.dtype.
  std::vector<MutableTensorView> targets;
  // Time after which the transport ends the pull with DEADLINE_EXCEEDED.
  absl::Duration timeout = absl::InfiniteDuration();
  // Called with the payload bytes as they arrive. A pull over several lanes calls it on several
  // threads concurrently.
  std::function<void(uint64_t)> on_bytes;
  // Called with a parameter and the number of its 16-bit elements that arrived as infinity; threads
  // as for on_bytes. Not called for what arrives over NCCL.
  std::function<void(uint32_t parameter_id, uint64_t elements)> on_infinite;
  // Called once, on a thread of the transport: with OK when the targets are complete, or with an
  // error when they are no longer written. DATA_LOSS means a wrong checksum.
  std::function<void(const absl::Status&)> done;
};

class ShardChannel {
 public:
  virtual ~ShardChannel() = default;
  // Sends `open` first.
  virtual std::shared_ptr<PushStream> Push(const v1::PushOpen& open,
                                           std::shared_ptr<PushSource> source) = 0;
  virtual std::shared_ptr<PullStream> Pull(PullOptions options) = 0;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_SHARD_CHANNEL_H_
