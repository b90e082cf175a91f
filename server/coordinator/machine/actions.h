// Actions that the coordinator's state machine asks of its owner: messages to shards, answers to
// waiting calls, the next time to wake it. Plain values; StepMachine and its parts make them, the
// one thread that owns the machine consumes them.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_ACTIONS_H_
#define KAON_SERVER_COORDINATOR_MACHINE_ACTIONS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/checkpoint/manifest.h"
#include "server/coordinator/machine/shared_message.h"

namespace kaon::coordinator {

// Names one call of a worker or an admin. The machine's owner chooses it and does not reuse it
// while the call is open.
using CallId = uint64_t;

// The message may be lost without harm: each heartbeat sends again what matters.
struct SendToShard {
  // Returns the content. It may lack the ballot, the holder's address and the shard.
  const v1::CoordinatorToShard& content() const { return body ? body->message : message; }
  // Returns the message as the shard reads it: on the wire, the bytes of `body` follow `message`.
  v1::CoordinatorToShard Whole() const {
    v1::CoordinatorToShard whole = message;
    if (body) whole.MergeFrom(body->message);
    return whole;
  }

  int shard = 0;
  v1::CoordinatorToShard message;
  // Plan or decision of a `message` that has none itself; null if `message` is complete.
  Shared<v1::CoordinatorToShard> body;
};

// Read the record of `position` from a shard's history; answer with OnRecordRead. Each heartbeat
// asks again until the answer is there.
struct ReadRecord {
  int shard = 0;
  uint64_t position = 0;
};

// Ask a shard whose gradients it lacks (DescribeShard); answer with OnAwaited. The machine asks
// again each second while it wants to know.
struct ReadAwaited {
  int shard = 0;
};

// These are the only answers to unary calls. `holder_address` is where a refused caller should go
// instead; empty if unknown.
struct ReplyRegister {
  CallId call = 0;
  absl::StatusOr<v1::JobDescription> response = absl::UnknownError("unset");
  std::string holder_address;
};
struct ReplyGetJob {
  CallId call = 0;
  absl::StatusOr<v1::JobDescription> response = absl::UnknownError("unset");
  std::string holder_address;
};
struct ReplyJoin {
  CallId call = 0;
  absl::StatusOr<v1::JoinWorkerResponse> response = absl::UnknownError("unset");
  std::string holder_address;
};
struct ReplyBegin {
  CallId call = 0;
  absl::StatusOr<v1::BeginStepResponse> response = absl::UnknownError("unset");
  std::string holder_address;
};
struct ReplySetGroup {
  CallId call = 0;
  absl::StatusOr<v1::SetGroupResponse> response = absl::UnknownError("unset");
  std::string holder_address;
  // A refusal names the control entry from which on the log may have the request; 0 = none.
  uint64_t config_revision = 0;
};

struct ReplyRestore {
  CallId call = 0;
  // The response lacks the checkpoint and the skipped ones, which the caller knows.
  absl::StatusOr<v1::RestoreCheckpointResponse> response = absl::UnknownError("unset");
  std::string holder_address;
};

struct ReplyDelete {
  CallId call = 0;
  absl::StatusOr<v1::DeleteJobResponse> response = absl::UnknownError("unset");
  std::string holder_address;
  // Has the meaning of ReplySetGroup::config_revision.
  uint64_t config_revision = 0;
};

struct ReplyCreate {
  CallId call = 0;
  absl::StatusOr<v1::CreateCheckpointResponse> response = absl::UnknownError("unset");
  std::string holder_address;
};

struct ReplyDrain {
  CallId call = 0;
  absl::StatusOr<v1::DrainShardResponse> response = absl::UnknownError("unset");
  std::string holder_address;
};

// Every part is durable: write the manifest; answer with OnCheckpointFinished. Without parts the
// checkpoint is abandoned: remove its files; no caller waits for that.
struct FinishCheckpoint {
  checkpoint::CheckpointFacts facts;
  uint64_t attempt = 0;
  std::vector<v1::CheckpointPart> parts;
  // Without parts: nothing failed, the same checkpoint exists already.
  bool is_there = false;
  // Remove older checkpoints beyond the number to keep, except those in use.
  bool retain = false;
  std::vector<checkpoint::RestoredCheckpoint> in_use;
  // Without parts: why the checkpoint was abandoned.
  absl::Status why;
};

// One event on an AwaitStep stream; the stream ends OK after the event with `last`.
struct AwaitEvent {
  CallId call = 0;
  Shared<v1::StepEvent> event;
  bool last = false;
};
// Ends an AwaitStep stream.
struct AwaitFailed {
  CallId call = 0;
  absl::Status status;
  std::string holder_address;
};

// Call Tick at this time; replaces any earlier request.
struct WakeAt {
  absl::Time time;
};

using CoordinatorAction =
    std::variant<SendToShard, ReplyRegister, ReplyGetJob, ReplyJoin, ReplyBegin, ReplySetGroup,
                 ReplyRestore, ReplyDelete, ReplyCreate, ReplyDrain, FinishCheckpoint, AwaitEvent,
                 AwaitFailed, ReadRecord, ReadAwaited, WakeAt>;
using Actions = std::vector<CoordinatorAction>;

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_ACTIONS_H_
