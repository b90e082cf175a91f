// One worker's side of the agreement: joining, beginning a step, following its plans and pushing
// until the decision, through failures and changes of coordinator. A pure state machine: calls'
// results and the time come in, calls to make go out; no clock, I/O, threads, or randomness but the
// seeded jitter. Owned by the client's event loop in production and by the simulator in tests; one
// thread at a time.
#ifndef KAON_CLIENT_WORKER_SESSION_H_
#define KAON_CLIENT_WORKER_SESSION_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/backoff.h"
#include "client/session_action.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::client {

struct WorkerSessionOptions {
  uint32_t rank = 0;
  // Random, one per process; not 0. The session joins with it first; others are drawn from it.
  uint64_t process_nonce = 0;
  // At least one.
  std::vector<std::string> coordinators;
  uint32_t num_shards = 0;
  uint64_t jitter_seed = 0;
  // Delay before a retry: doubles from first to max, times a random factor of [0.5, 1).
  absl::Duration first_backoff = absl::Milliseconds(20);
  // A push often comes a moment before its shard has accepted the plan.
  absl::Duration first_push_backoff = absl::Milliseconds(1);
  absl::Duration max_backoff = absl::Seconds(2);
};

class WorkerSession {
 public:
  explicit WorkerSession(WorkerSessionOptions options);

  // Takes the rank without beginning a step. The session must be idle.
  void Join(absl::Time now);

  // Begins a step, joining first if it must. The session must be idle. After a step that ended
  // without its record it begins with another attempt: the shards may have a part of what was
  // pushed under the one before, and would take it for a part of what is pushed now.
  void Begin(const StepShare& share, absl::Time now);

  // Ends whatever is under way without a JoinOver or StepOver.
  void Abandon();

  // True when no Join or Begin is under way.
  bool idle() const { return phase_ == Phase::kIdle; }
  const std::optional<v1::Attempt>& attempt() const { return attempt_; }

  // Results of coordinator calls. `holder` is the address in the trailing metadata kaon-holder, or
  // empty. Calls that are not the current one are ignored.
  void OnJoin(uint64_t call, const absl::StatusOr<Joined>& result, const std::string& holder,
              absl::Time now);
  // The record is set when the step is already decided.
  void OnBegin(uint64_t call, const absl::StatusOr<std::optional<v1::StepRecord>>& result,
               const std::string& holder, absl::Time now);
  void OnEvent(uint64_t call, const AwaitEvent& event, absl::Time now);
  void OnAwaitEnded(uint64_t call, const absl::Status& status, const std::string& holder,
                    absl::Time now);

  // The push to `shard` ended; OK when the shard has accepted everything and the finish.
  void OnPushEnded(uint64_t call, uint32_t shard, const absl::Status& status, absl::Time now);

  // Starts what a WakeAt waited for.
  void Tick(absl::Time now);

  // What to do, in order; each action is returned once.
  std::vector<SessionAction> TakeActions();

 private:
  enum class Phase { kIdle, kJoining, kBeginning, kAwaiting };

  struct ShardPush {
    // 0 = none under way.
    uint64_t call = 0;
    int failures = 0;
    int not_found = 0;
    std::optional<absl::Time> retry_at;
  };

  void CallCoordinator();
  // The coordinators' failures of the past say nothing any more.
  void ForgetFailures();
  // Decides what a failed coordinator call leads to: another coordinator, joining again, or the
  // end.
  void OnCoordinatorFailure(const absl::Status& status, const std::string& holder, absl::Time now);
  void OnPlanned(const Planned& planned);
  void OpenPush(uint32_t shard);
  void EndStep(absl::StatusOr<v1::StepRecord> record);
  void EndRewound(const Joined& joined);
  // Ends the Join or the step with an error.
  void Fail(const absl::Status& status);
  void StopCalls();
  // What is joined next is another attempt.
  void DropAttempt();

  const WorkerSessionOptions options_;
  std::mt19937_64 nonces_;
  Backoff backoff_;
  Backoff push_backoff_;
  std::vector<SessionAction> actions_;

  Phase phase_ = Phase::kIdle;
  uint64_t last_call_ = 0;
  // The one coordinator call under way; 0 = none.
  uint64_t coordinator_call_ = 0;
  std::string coordinator_;
  size_t rotation_ = 0;
  // In a row, since the Begin or the last event: an accepted call alone does not show progress.
  int coordinator_failures_ = 0;
  // Of them, those that said that there is no such job.
  int coordinator_not_found_ = 0;
  std::optional<absl::Time> coordinator_retry_at_;

  // A coordinator allots one attempt to each.
  uint64_t process_nonce_ = 0;
  std::optional<v1::Attempt> attempt_;
  // A step begun under `attempt_` ended without its record: no other may begin under it.
  bool spent_ = false;
  // Absent while only joining.
  std::optional<StepShare> share_;
  // The newest plan of this step that was heard of.
  std::optional<Planned> planned_;
  std::vector<ShardPush> pushes_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_WORKER_SESSION_H_
