// What the agreement of a shard asks its owner to do. Plain values, made by ShardMachine and
// carried out by ShardCore and its owner; any thread.
#ifndef KAON_SERVER_SHARD_AGREEMENT_SHARD_ACTION_H_
#define KAON_SERVER_SHARD_AGREEMENT_SHARD_ACTION_H_

#include <cstdint>
#include <variant>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/journal/record.h"

namespace kaon::shard {

// One control stream of one coordinator, for as long as it is open.
using StreamId = uint64_t;

// Send on a stream; if it has closed meanwhile the message is lost, as any message may be.
struct SendToCoordinator {
  StreamId stream = 0;
  v1::ShardToCoordinator message;
};

// End a stream that broke the contract.
struct EndStream {
  StreamId stream = 0;
  absl::Status status;
};

// Answer with OnDurable(token).
struct AppendJournal {
  uint64_t token = 0;
  journal::Record record;
};

// Collect the contributions of a step; answer with OnFolded(generation) once all are folded. What
// an earlier generation collected may be kept as rule 8 allows.
struct BeginFolding {
  v1::StepPlan plan;
  uint64_t generation = 0;
};

// The plan in folding got a new (ballot, round) and nothing else; the generation stays.
struct RestampPlan {
  v1::StepPlan plan;
};

// Make sure of memory, and of a restore's checkpoint; answer with OnReserved(generation).
struct ReserveJob {
  v1::StepPlan plan;
  uint64_t generation = 0;
};

// The entry is decided: change the state accordingly, answer OnApplied with its digest then.
struct ApplyRecord {
  v1::StepRecord record;
};

// Write the state after `position` into checkpoint `id`, as this attempt of it, and tell `stream`
// how far that is.
struct WriteCheckpoint {
  StreamId stream = 0;
  v1::TakeCheckpoint order;
};

using ShardAction = std::variant<SendToCoordinator, EndStream, AppendJournal, BeginFolding,
                                 RestampPlan, ReserveJob, ApplyRecord, WriteCheckpoint>;

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_AGREEMENT_SHARD_ACTION_H_
