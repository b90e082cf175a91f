// A shard's part of a checkpoint: the state right after one entry is frozen, and written by another
// thread while the shard goes on.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ballot.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/shard/shard_core.h"
#include "server/shard/snapshot/checkpoint_part.h"

namespace kaon::shard {

void ShardCore::TakeCheckpoint(const WriteCheckpoint& write) {
  // Asked again, it tells how far it is; another attempt ends the one before.
  if (checkpoint_ == nullptr || !checkpoint_->Is(write.order.id(), write.order.attempt())) {
    checkpoint_ = std::make_unique<CheckpointOrder>(write.order, machine_.promised());
    FreezeForCheckpoint();
  }
  checkpoint_->AskedBy(write.stream, machine_.promised());
  ReportCheckpoint();
}

void ShardCore::FreezeForCheckpoint() {
  if (checkpoint_ == nullptr || !checkpoint_->waits()) return;
  const uint64_t applied = machine_.applied_position();
  if (checkpoint_->position() == applied + 1) return;
  if (checkpoint_->position() != applied) {
    return checkpoint_->End(absl::FailedPreconditionError(
        absl::StrCat("checkpoint of position ", checkpoint_->position(),
                     " asked for, the shard is at position ", applied)));
  }
  absl::StatusOr<std::unique_ptr<StateFreeze>> freeze = Freeze();
  if (!freeze.ok()) return checkpoint_->End(freeze.status());
  checkpoint_->Begin((*freeze)->num_bytes());
  PassFailpoint(Failpoint::checkpoint_frozen);
  PartOptions options;
  options.id = checkpoint_->id();
  options.attempt = checkpoint_->attempt();
  options.backend = std::string(options_.backend->name());
  options.progress = [progress = checkpoint_->progress()](uint64_t written_bytes) {
    progress->written_bytes = written_bytes;
    if (!progress->given_up) return absl::OkStatus();
    return absl::CancelledError("nobody waits for this checkpoint any more");
  };
  host_.WritePart(*std::move(freeze), std::move(options));
}

void ShardCore::OnPartWritten(const std::string& id, uint64_t attempt,
                              const absl::StatusOr<v1::CheckpointPart>& part) {
  // Late news of one that was given up.
  if (checkpoint_ == nullptr || !checkpoint_->Is(id, attempt)) return;
  checkpoint_->End(part);
  ReportCheckpoint();
}

void ShardCore::ReportCheckpoint() {
  // Rule 1: "After promising b a shard sends no answer, PREPARE included, to a lower ballot."
  if (proto::Compare(checkpoint_->ballot(), machine_.promised()) != 0) return;
  SendToCoordinator send;
  send.stream = checkpoint_->stream();
  send.message.set_shard(machine_.shard());
  *send.message.mutable_promised() = machine_.promised();
  *send.message.mutable_checkpoint() = checkpoint_->Report();
  outputs_.push_back(std::move(send));
}

}  // namespace kaon::shard
