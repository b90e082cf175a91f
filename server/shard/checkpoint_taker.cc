#include "server/shard/checkpoint_taker.h"

#include "absl/strings/str_cat.h"
#include "proto/ballot.h"
#include "proto/failpoint.h"
#include "server/shard/snapshot/checkpoint_part.h"

namespace kaon::shard {

CheckpointTaker::Report CheckpointTaker::OnOrder(const WriteCheckpoint& write) {
  if (order_ == nullptr || !order_->Is(write.order.id(), write.order.attempt())) {
    order_ = std::make_unique<CheckpointOrder>(write.order, machine_.promised());
    FreezeIfDue();
  }
  order_->AskedBy(write.stream, machine_.promised());
  return MakeReport();
}

void CheckpointTaker::FreezeIfDue() {
  if (order_ == nullptr || !order_->waits()) return;
  const uint64_t applied = machine_.applied_position();
  if (order_->position() == applied + 1) return;
  if (order_->position() != applied) {
    return order_->End(absl::FailedPreconditionError(
        absl::StrCat("checkpoint of position ", order_->position(),
                     " asked for, the shard is at position ", applied)));
  }
  if (!machine_.registration().has_value()) {
    return order_->End(absl::FailedPreconditionError(
        absl::StrCat("the shard holds no job at position ", applied)));
  }
  absl::StatusOr<std::unique_ptr<StateFreeze>> freeze = state_.Freeze();
  if (!freeze.ok()) return order_->End(freeze.status());
  order_->Begin((*freeze)->num_bytes());
  PassFailpoint(Failpoint::checkpoint_frozen);
  PartOptions options;
  options.id = order_->id();
  options.attempt = order_->attempt();
  options.written_by = written_by_;
  options.progress = [progress = order_->progress()](uint64_t written_bytes) {
    progress->written_bytes = written_bytes;
    if (!progress->given_up) return absl::OkStatus();
    return absl::CancelledError("nobody waits for this checkpoint any more");
  };
  host_.WritePart(*std::move(freeze), std::move(options));
}

CheckpointTaker::Report CheckpointTaker::OnPartWritten(
    const std::string& id, uint64_t attempt, const absl::StatusOr<v1::CheckpointPart>& part) {
  if (order_ == nullptr || !order_->Is(id, attempt)) return std::nullopt;
  order_->End(part);
  return MakeReport();
}

CheckpointTaker::Report CheckpointTaker::MakeReport() const {
  if (proto::Compare(order_->ballot(), machine_.promised()) != 0) return std::nullopt;
  SendToCoordinator send;
  send.stream = order_->stream();
  send.message.set_shard(machine_.shard());
  *send.message.mutable_promised() = machine_.promised();
  *send.message.mutable_checkpoint() = order_->Report();
  return send;
}

}  // namespace kaon::shard
