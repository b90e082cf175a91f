// The newest checkpoint attempt that this shard was asked for: its entry, progress and result.
// Owned by CheckpointTaker and used by its thread. Only Progress is shared with the writing thread.
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
  // Shared by the writer and this order.
  struct Progress {
    std::atomic<uint64_t> written_bytes{0};
    std::atomic<bool> given_up{false};
  };

  CheckpointOrder(v1::TakeCheckpoint order, v1::Ballot ballot)
      : order_(std::move(order)), ballot_(std::move(ballot)) {}
  // Makes the writer stop soon.
  ~CheckpointOrder() { progress_->given_up = true; }

  const std::string& id() const { return order_.id(); }
  uint64_t attempt() const { return order_.attempt(); }
  bool Is(absl::string_view id, uint64_t attempt) const {
    return id == order_.id() && attempt == order_.attempt();
  }
  uint64_t position() const { return order_.position(); }
  // Ballot and stream of the latest request.
  const v1::Ballot& ballot() const { return ballot_; }
  StreamId stream() const { return stream_; }
  void AskedBy(StreamId stream, const v1::Ballot& ballot) {
    stream_ = stream;
    ballot_ = ballot;
  }

  // Returns true while the entry is not applied yet: neither frozen nor failed.
  bool waits() const { return !begun_ && result_.ok() && !result_->has_value(); }
  // Starts progress. A shard without parameters has 0 bytes.
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
  // Absent while the part is being written.
  absl::StatusOr<std::optional<v1::CheckpointPart>> result_ = std::optional<v1::CheckpointPart>();
  // Shared with the writer, which may outlive the order.
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_ORDER_H_
