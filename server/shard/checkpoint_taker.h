// Takes this shard's part of a checkpoint. Freezes the state right after one entry, lets the host
// write it while the shard goes on, and reports to the coordinator. It holds one attempt at a time.
// Owned by ShardCore; step thread.
#ifndef KAON_SERVER_SHARD_CHECKPOINT_TAKER_H_
#define KAON_SERVER_SHARD_CHECKPOINT_TAKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/shard/agreement/shard_action.h"
#include "server/shard/agreement/shard_machine.h"
#include "server/shard/applied_state.h"
#include "server/shard/shard_host.h"
#include "server/shard/snapshot/checkpoint_order.h"

namespace kaon::shard {

class CheckpointTaker {
 public:
  // A report to the coordinator; absent if the shard has promised a newer ballot than that of the
  // order. Rule 1: "After promising b a shard sends no answer, PREPARE included, to a lower
  // ballot."
  using Report = std::optional<SendToCoordinator>;

  // All references outlive this object. `written_by`: build, backend and device
  // class that computed the state.
  CheckpointTaker(ShardHost& host, const ShardMachine& machine, AppliedState& state,
                  v1::CheckpointFile written_by)
      : host_(host), machine_(machine), state_(state), written_by_(std::move(written_by)) {}

  // Begins the attempt that `write` orders, in place of an earlier one. An order that is repeated
  // begins nothing. Returns how far the attempt is.
  Report OnOrder(const WriteCheckpoint& write);
  // Tells that an entry has taken effect: an order may have waited for it.
  void OnApplied() { FreezeIfDue(); }
  // Returns the last report; absent for news of an attempt that was given up.
  Report OnPartWritten(const std::string& id, uint64_t attempt,
                       const absl::StatusOr<v1::CheckpointPart>& part);
  // Gives up the attempt, if there is one. Its writer stops soon.
  void GiveUp() { order_.reset(); }

 private:
  // Freezes the state for the order, unless its entry is still to come.
  void FreezeIfDue();
  Report MakeReport() const;

  ShardHost& host_;
  const ShardMachine& machine_;
  AppliedState& state_;
  const v1::CheckpointFile written_by_;
  // Newest attempt; null before the first, and after GiveUp.
  std::unique_ptr<CheckpointOrder> order_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_CHECKPOINT_TAKER_H_
