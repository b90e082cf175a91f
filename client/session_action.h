// Inputs and outputs of a worker's session: its share of a step, the answers to its calls, and the
// calls it requests. Plain values.
#ifndef KAON_CLIENT_SESSION_ACTION_H_
#define KAON_CLIENT_SESSION_ACTION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::client {

// A worker's part of one step, as in BeginStepRequest.
struct StepShare {
  uint64_t step = 0;
  double token_weight = 1;
  uint32_t micro_batches = 1;
  double learning_rate_multiplier = 1;
  std::map<std::string, double> group_multipliers = {};
  std::string traceparent = {};
  // Timeline of the job, as far as the worker that begins the step knows it.
  uint64_t timeline = 0;
};

// Answer to a join.
struct Joined {
  v1::Attempt attempt;
  uint64_t process_nonce = 0;
  uint64_t applied_step = 0;
  bool weights_loaded = false;
  double loss_scale = 1;
  uint64_t timeline = 0;
};

// Events of AwaitStep.
struct Planned {
  v1::Ballot ballot;
  uint64_t round = 0;
};
using AwaitEvent = std::variant<Planned, v1::StepRecord>;

// Actions for the session's owner. `call` numbers are unique in a session; the owner passes them
// back with the results.
struct CallJoin {
  uint64_t call = 0;
  std::string coordinator;
  uint64_t process_nonce = 0;
  // The attempt that this process already holds.
  std::optional<v1::Attempt> previous_attempt;
};
struct CallBegin {
  uint64_t call = 0;
  std::string coordinator;
  v1::Attempt attempt;
  uint64_t process_nonce = 0;
  StepShare share;
};
struct CallAwait {
  uint64_t call = 0;
  std::string coordinator;
  v1::Attempt attempt;
  uint64_t step = 0;
};
// Push everything that the shard lacks (its PushOpened tells what), then finish. Replaces any
// earlier push to that shard; a CancelCalls before it names the earlier one.
struct StartPush {
  uint64_t call = 0;
  uint32_t shard = 0;
  v1::Attempt attempt;
  uint64_t step = 0;
  v1::Ballot ballot;
  uint64_t round = 0;
};
// Cancel these calls; the session ignores their results from now on.
struct CancelCalls {
  std::vector<uint64_t> calls;
};
// Call Tick at this time at the latest. Earlier or additional ticks do no harm.
struct WakeAt {
  absl::Time at;
};
// Result of a Join that was requested without a step.
struct JoinOver {
  absl::StatusOr<Joined> joined;
};
// The step's only result; the session is ready for the next Begin.
struct StepOver {
  absl::StatusOr<v1::StepRecord> record;
  // Set if the step's timeline is over: the state from which the job continues.
  std::optional<Joined> rewound = std::nullopt;
};
using SessionAction = std::variant<CallJoin, CallBegin, CallAwait, StartPush, CancelCalls, WakeAt,
                                   JoinOver, StepOver>;

}  // namespace kaon::client

#endif  // KAON_CLIENT_SESSION_ACTION_H_
