// Actions that the agreement of a shard asks its owner to perform. Plain values: ShardMachine
// creates them, ShardCore and its owner perform them. Any thread.
#ifndef KAON_SERVER_SHARD_AGREEMENT_SHARD_ACTION_H_
#define KAON_SERVER_SHARD_AGREEMENT_SHARD_ACTION_H_

#include <cstdint>
#include <variant>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/journal/record.h"

namespace kaon::shard {

// Identifies one control stream of one coordinator while it is open.
using StreamId = uint64_t;

// Send `message` on a stream. If the stream has closed meanwhile, the message is lost, like any
// message may be.
struct SendToCoordinator {
  StreamId stream = 0;
  v1::ShardToCoordinator message;
};

// End a stream that violated the protocol.
struct EndStream {
  StreamId stream = 0;
  absl::Status status;
};

// Append `record` to the journal; call OnDurable(token) once it is durable.
struct AppendJournal {
  uint64_t token = 0;
  journal::Record record;
};

// Collect the contributions to a step; call OnFolded(generation) once all are folded. The
// contributions of an earlier generation may be kept where protocol.md 2.1 allows it (rule 8).
struct BeginFolding {
  v1::StepPlan plan;
  uint64_t generation = 0;
};

// Replace (ballot, round) of the plan in folding. Nothing else changes; the generation stays.
struct RestampPlan {
  v1::StepPlan plan;
};

// Reserve memory, and check the checkpoint of a restore; call OnReserved(generation).
struct ReserveJob {
  v1::StepPlan plan;
  uint64_t generation = 0;
};

// Apply a decided entry to the state, then call OnApplied with the new digest.
struct ApplyRecord {
  v1::StepRecord record;
};

// Write the state after the order's `position` into its checkpoint and attempt; report progress on
// `stream`.
struct WriteCheckpoint {
  StreamId stream = 0;
  v1::TakeCheckpoint order;
};

using ShardAction = std::variant<SendToCoordinator, EndStream, AppendJournal, BeginFolding,
                                 RestampPlan, ReserveJob, ApplyRecord, WriteCheckpoint>;

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_AGREEMENT_SHARD_ACTION_H_
