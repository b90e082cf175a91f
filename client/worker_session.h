// Runs one worker's side of the agreement: it joins, begins a step, follows its plans and pushes
// until the decision. It survives failures and changes of coordinator.
// A pure state machine: call results and the time come in, calls to make go out. It has no clock,
// I/O or threads, and no randomness but the seeded jitter. The client's event loop owns it, or the
// simulator in tests; one thread at a time.
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
  // Random, one per process, not 0. The session joins with it first and draws later nonces from it.
  uint64_t process_nonce = 0;
  // One address or more.
  std::vector<std::string> coordinators;
  uint32_t num_shards = 0;
  uint64_t jitter_seed = 0;
  // Delay before a retry: doubles from first to max, times a random factor of [0.5, 1).
  absl::Duration first_backoff = absl::Milliseconds(20);
  // Shorter, because a push often arrives just before its shard has accepted the plan.
  absl::Duration first_push_backoff = absl::Milliseconds(1);
  absl::Duration max_backoff = absl::Seconds(2);
};

class WorkerSession {
 public:
  explicit WorkerSession(WorkerSessionOptions options);

  // Takes the rank without beginning a step. The session must be idle.
  void Join(absl::Time now);

  // Begins a step; joins first if necessary. The session must be idle. After a step that ended
  // without its record, the session begins with a new attempt. The shards may hold part of the old
  // push and would count it as part of the new one.
  void Begin(const StepShare& share, absl::Time now);

  // Ends the current Join or Begin without a JoinOver or StepOver.
  void Abandon();

  // Returns true if no Join or Begin is running.
  bool idle() const { return phase_ == Phase::kIdle; }
  const std::optional<v1::Attempt>& attempt() const { return attempt_; }

  // Returns what the current Join or Begin waits for, with the newest error; "" when idle.
  // `lacking`: shards that lack gradients which the trainer has pushed.
  std::string WaitsFor(const std::vector<uint32_t>& lacking = {}) const;

  // The next five take results of calls; they ignore calls that are not current. `holder` is the
  // address in the trailing metadata kaon-holder, or empty.
  void OnJoin(uint64_t call, const absl::StatusOr<Joined>& result, const std::string& holder,
              absl::Time now);
  // `result` holds the record if the step is already decided.
  void OnBegin(uint64_t call, const absl::StatusOr<std::optional<v1::StepRecord>>& result,
               const std::string& holder, absl::Time now);
  void OnEvent(uint64_t call, const AwaitEvent& event, absl::Time now);
  void OnAwaitEnded(uint64_t call, const absl::Status& status, const std::string& holder,
                    absl::Time now);

  // The push to `shard` ended. OK if the shard has accepted everything and the finish.
  void OnPushEnded(uint64_t call, uint32_t shard, const absl::Status& status, absl::Time now);

  // Starts the work that a WakeAt waited for.
  void Tick(absl::Time now);

  // Returns the actions to perform, in order; each is returned once.
  std::vector<SessionAction> TakeActions();

 private:
  enum class Phase { kIdle, kJoining, kBeginning, kAwaiting };

  struct ShardPush {
    // 0: no push is open.
    uint64_t call = 0;
    bool accepted = false;
    int failures = 0;
    int not_found = 0;
    std::optional<absl::Time> retry_at;
  };

  void CallCoordinator();
  // Resets the failure counts after progress.
  void ForgetFailures();
  // Reacts to a failed coordinator call: tries another coordinator, joins again, or ends the Join
  // or step.
  void OnCoordinatorFailure(const absl::Status& status, const std::string& holder, absl::Time now);
  void OnPlanned(const Planned& planned);
  void OpenPush(uint32_t shard);
  void EndStep(absl::StatusOr<v1::StepRecord> record);
  void EndRewound(const Joined& joined);
  // Ends the Join or the step with an error.
  void Fail(const absl::Status& status);
  void StopCalls();
  // Makes the next join ask for a new attempt.
  void DropAttempt();

  const WorkerSessionOptions options_;
  std::mt19937_64 nonces_;
  Backoff backoff_;
  Backoff push_backoff_;
  std::vector<SessionAction> actions_;

  Phase phase_ = Phase::kIdle;
  uint64_t last_call_ = 0;
  // The one open coordinator call; 0 if there is none.
  uint64_t coordinator_call_ = 0;
  std::string coordinator_;
  size_t rotation_ = 0;
  // Failures in a row since the Begin or the last event. An accepted call alone is no progress.
  int coordinator_failures_ = 0;
  // Count of these failures that reported an unknown job.
  int coordinator_not_found_ = 0;
  std::optional<absl::Time> coordinator_retry_at_;

  // A coordinator allots one attempt to each nonce.
  uint64_t process_nonce_ = 0;
  std::optional<v1::Attempt> attempt_;
  // A step begun under `attempt_` ended without its record: no other step may use this attempt.
  bool spent_ = false;
  // Absent while only joining.
  std::optional<StepShare> share_;
  // The newest known plan of this step.
  std::optional<Planned> planned_;
  std::vector<ShardPush> pushes_;
  // The newest failure of a call since the last progress.
  absl::Status last_failure_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_WORKER_SESSION_H_
