// What the coordinator's state machine asks its owner to do: messages to shards, answers to waiting
// calls, the next time it wants to be woken. Plain values made by StepMachine and consumed by the
// one thread that owns it.
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

// One call of a worker or an admin, named by the machine's owner; never reused while the call is
// open.
using CallId = uint64_t;

// May be lost without harm: everything that matters is sent again at each heartbeat.
struct SendToShard {
  // What it says, but perhaps for who says it to whom.
  const v1::CoordinatorToShard& content() const { return body ? body->message : message; }
  // The message as the shard reads it. On the wire it is `message` with `body`'s bytes behind.
  v1::CoordinatorToShard Whole() const {
    v1::CoordinatorToShard whole = message;
    if (body) whole.MergeFrom(body->message);
    return whole;
  }

  int shard = 0;
  v1::CoordinatorToShard message;
  // The plan or decision of a message that has none itself; null = it is complete.
  Shared<v1::CoordinatorToShard> body;
};

// Read the record of `position` from a shard's history; answer with OnRecordRead. Asked again at
// each heartbeat until it is answered.
struct ReadRecord {
  int shard = 0;
  uint64_t position = 0;
};

// The one answer to a unary call. `holder_address` is where the caller should go instead; empty if
// unknown.
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
  // Of a refusal: the control entry from which on the request may be found in the log; 0 = none.
  uint64_t config_revision = 0;
};

struct ReplyRestore {
  CallId call = 0;
  // Without the checkpoint and what was skipped, which the asker knows.
  absl::StatusOr<v1::RestoreCheckpointResponse> response = absl::UnknownError("unset");
  std::string holder_address;
};

struct ReplyCreate {
  CallId call = 0;
  absl::StatusOr<v1::CreateCheckpointResponse> response = absl::UnknownError("unset");
  std::string holder_address;
};

// Every part is durable: write the manifest; answer with OnCheckpointFinished. Without parts the
// checkpoint is given up: remove what of it is there, nobody waits for that.
struct FinishCheckpoint {
  checkpoint::CheckpointFacts facts;
  uint64_t attempt = 0;
  std::vector<v1::CheckpointPart> parts;
  // Without parts: nothing failed, the same checkpoint is there already.
  bool is_there = false;
  // Older ones that are beyond what is kept may go, but for those that are in use.
  bool retain = false;
  std::vector<checkpoint::RestoredCheckpoint> in_use;
  // Without parts: what it was given up for.
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
                 ReplyRestore, ReplyCreate, FinishCheckpoint, AwaitEvent, AwaitFailed, ReadRecord,
                 WakeAt>;

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_ACTIONS_H_
