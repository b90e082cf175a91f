// The one attempt at a checkpoint that a shard was asked for last: of which entry, how far it is,
// and what came of it. Owned by ShardCore and used by its thread; how many bytes are written, and
// whether to go on, is shared with the thread that writes.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_ORDER_H_
#define KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_ORDER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/checkpoint.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/shard/agreement/shard_action.h"

namespace kaon::shard {

class CheckpointOrder {
 public:
  // What the writer and the one that waits for it share.
  struct Progress {
    std::atomic<uint64_t> written_bytes{0};
    std::atomic<bool> given_up{false};
  };

  CheckpointOrder(v1::TakeCheckpoint order, v1::Ballot ballot)
      : order_(std::move(order)), ballot_(std::move(ballot)) {}
  // Whoever writes it stops soon.
  ~CheckpointOrder() { progress_->given_up = true; }

  const std::string& id() const { return order_.id(); }
  uint64_t attempt() const { return order_.attempt(); }
  bool Is(absl::string_view id, uint64_t attempt) const {
    return id == order_.id() && attempt == order_.attempt();
  }
  uint64_t position() const { return order_.position(); }
  // Of who asked last, by which stream.
  const v1::Ballot& ballot() const { return ballot_; }
  StreamId stream() const { return stream_; }
  void AskedBy(StreamId stream, const v1::Ballot& ballot) {
    stream_ = stream;
    ballot_ = ballot;
  }

  // Neither frozen nor failed: its entry is not applied yet.
  bool waits() const { return !begun_ && result_.ok() && !result_->has_value(); }
  // Of a shard without parameters there are none.
  void Begin(uint64_t total_bytes) {
    begun_ = true;
    total_bytes_ = total_bytes;
  }
  void End(const absl::StatusOr<v1::CheckpointPart>& part);
  v1::CheckpointReport Report() const;

  const std::shared_ptr<Progress>& progress() const { return progress_; }

 private:
  const v1::TakeCheckpoint order_;
  v1::Ballot ballot_;
  StreamId stream_ = 0;
  bool begun_ = false;
  uint64_t total_bytes_ = 0;
  // Nothing while it is written.
  absl::StatusOr<std::optional<v1::CheckpointPart>> result_ = std::optional<v1::CheckpointPart>();
  // Shared with the writer, which may outlive the order.
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_ORDER_H_
