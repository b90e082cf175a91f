// One coordinator as a pure state machine (protocol.md section 2): its phase, the open round and
// the decision. No I/O, clock or threads; its only randomness is seeded. Owned by CoordinatorServer
// or the simulator; one thread. Messages may be lost, doubled and reordered.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_H_
#define KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "server/coordinator/machine/actions.h"
#include "server/coordinator/machine/checkpoints.h"
#include "server/coordinator/machine/election.h"
#include "server/coordinator/machine/grad_norm_watch.h"
#include "server/coordinator/machine/job_state.h"
#include "server/coordinator/machine/join_limit.h"
#include "server/coordinator/machine/machine_phase.h"
#include "server/coordinator/machine/membership.h"
#include "server/coordinator/machine/placement.h"
#include "server/coordinator/machine/recovery.h"
#include "server/coordinator/machine/registration.h"
#include "server/coordinator/machine/requests/admin_requests.h"
#include "server/coordinator/machine/shared_message.h"
#include "server/coordinator/machine/status_text.h"
#include "server/coordinator/machine/step_deadline.h"
#include "server/coordinator/machine/step_machine_options.h"
#include "server/coordinator/machine/step_results.h"
#include "server/coordinator/machine/worker_watch.h"

namespace kaon::coordinator {

class StepMachine {
 public:
  explicit StepMachine(StepMachineOptions options);

  // A stream to the shard opened or ended. The owner may drop messages of earlier streams.
  void OnShardConnected(int shard);
  void OnShardDisconnected(int shard, const absl::Status& why = {});
  void OnShardMessage(int shard, v1::ShardToCoordinator message, absl::Time now);
  // Call once at the start and then at each WakeAt. More calls only send more messages.
  void Tick(absl::Time now);
  // Takes the answer to a ReadRecord or ReadAwaited.
  void OnRecordRead(uint64_t position, const absl::StatusOr<v1::StepRecord>& record);
  void OnAwaited(int shard, const v1::DescribeShardResponse& description);
  // Calls of workers; actions answer each of them. Codes: coordinator.proto. If another
  // coordinator is known to hold the shards, the answer is FAILED_PRECONDITION with its address;
  // while none holds them, UNAVAILABLE.
  void Register(CallId call, const v1::RegisterJobRequest& request);
  void GetJob(CallId call, const v1::GetJobRequest& request);
  void Join(CallId call, const v1::JoinWorkerRequest& request);
  void Begin(CallId call, const v1::BeginStepRequest& request);
  void Await(CallId call, const v1::AwaitStepRequest& request);
  // Calls of admins, answered alike; codes: admin.proto. A change waits for the boundary between
  // two steps; a restore and a deletion for the entry that is being applied.
  void SetGroup(CallId call, const v1::SetGroupRequest& request);
  void Restore(CallId call, const RestoreOrder& order);
  void DeleteJob(CallId call, const v1::DeleteJobRequest& request);
  void CreateCheckpoint(CallId call, const v1::CreateCheckpointRequest& request);
  void DrainShard(CallId call, const v1::DrainShardRequest& request);
  // Takes the answer to a FinishCheckpoint with parts.
  void OnCheckpointFinished(uint64_t attempt, const absl::StatusOr<v1::CheckpointSummary>& summary);
  // Forgets a call whose caller is gone. A change that is not planned yet is dropped.
  void CancelCall(CallId call);
  // Returns the actions since the last call, in order.
  Actions TakeActions();
  CoordinatorSnapshot Snapshot() const;
  // Returns whether this coordinator has read every shard under its own ballot and has not been
  // refused since.
  bool IsHolder() const { return phase_ > Phase::kReading; }
  // Not OK once the job cannot go on.
  const absl::Status& stopped() const { return stopped_; }
  const std::map<uint32_t, std::string>& lost_workers() const { return membership_.lost(); }
  const GradNormWatch& grad_norms() const { return grad_norms_; }

 private:
  using Phase = MachinePhase;
  // Queues an action. A refusal gets the address of the holder, if another coordinator holds.
  void Do(CoordinatorAction action);
  void Do(Actions actions);
  // `body`: the plan or decision of a message that has none itself.
  void Send(int shard, v1::CoordinatorToShard message, Shared<v1::CoordinatorToShard> body = {});
  // Sends what the shard has not answered yet, or else a heartbeat.
  void SendPhaseMessage(int shard);
  void SendHeartbeat(int shard);
  void AskForParts();
  // Sends the order of a drain if no entry is open.
  void AskToDrain();
  void Stand();
  void StepDown();
  void Stop(absl::Status reason);
  void FailChanges(const absl::Status& status);
  void OnState(int shard, const v1::ShardState& state);
  void OnPrepared(int shard, v1::Prepared prepared);
  void OnApplied(int shard, uint64_t position);
  void OnRefused(int shard, const v1::Refused& refused);
  void OnPlanRefused(const std::string& problem);
  void OnDecisionRefused(int shard, const v1::Refused& refused);
  void RecoverWhenAllRead();
  void ReadStepRecord();
  // Opens a round for the request of an admin that waits, or else for the next step.
  void OpenNext();
  // False if none waits, or its plan failed.
  bool OpenDeletion();
  bool OpenRestore();
  bool OpenGroupChange();
  void MaybeOpenStepRound();
  void OpenRound(v1::StepPlan plan);
  void DecideWhenAllPrepared();
  void TakeDecision(const v1::StepPlan& plan, const std::vector<v1::Prepared>& prepared);
  // Makes the decided record the newest and sends it to every shard.
  void Adopt(v1::StepRecord decided);
  // `over`: why calls of the old timeline fail.
  void BeginTimeline(const absl::Status& over);
  void BecomeReadyWhenAllApplied();
  void ForgetSharesOutOfRange();
  // The plan of the open round; an empty plan if none is open.
  const v1::StepPlan& OpenPlan() const {
    return phase_ == Phase::kRound ? plan_ : v1::StepPlan::default_instance();
  }
  // The plan that is open or decided and not applied; an empty plan if none is.
  const v1::StepPlan& UnderWay() const {
    return phase_ == Phase::kApplying ? job_.NewestPlan() : OpenPlan();
  }

  absl::Status CheckHolder() const;
  // CheckHolder, then NOT_FOUND unless every shard has registered `job`.
  absl::Status CheckJob(absl::string_view job) const;
  // Returns whether the entry that brought the job, or its state, is being applied.
  bool IsBeingRegistered() const;
  // UNAVAILABLE while a shard is silent: it may have another holder by now.
  absl::Status CheckHeard() const;
  // CheckJob, then the reason the job stopped for, then CheckHeard.
  absl::Status CheckRunning(absl::string_view job) const;
  // CheckRunning of the job that an admin names; an empty name stands for the job that runs.
  absl::Status CheckAdmin(const std::string& job) const;
  absl::Status TryRegister(CallId call, const v1::JobDefinition& definition);
  absl::Status TakeWorkers(CallId call, const v1::JobDefinition& definition);
  void AnswerRegistrations(const absl::Status& status);
  absl::StatusOr<v1::JoinWorkerResponse> TryJoin(const v1::JoinWorkerRequest& request);
  absl::StatusOr<v1::BeginStepResponse> TryBegin(const v1::BeginStepRequest& request);
  absl::Status TrySetGroup(CallId call, const v1::SetGroupRequest& request);
  absl::Status TryRestore(CallId call, const RestoreOrder& order);
  absl::Status TryDelete(CallId call, const v1::DeleteJobRequest& request);
  // Returns the reason the job stopped for, unless an entry that replaces the state cures it.
  absl::Status CheckReplaceable() const;
  bool MayLoseWorkers() const;
  // Returns whether every member of the open round is still there.
  bool RoundIsWhole() const;
  std::vector<uint32_t> LateWorkers() const;
  void LoseWorkers(absl::Time now);
  void Lose(const std::vector<uint32_t>& ranks, const std::string& why, const std::string& shown);
  std::string HolderHint() const;
  v1::JobDescription Describe() const;
  absl::StatusOr<v1::JobDescription> DescribeIf(const absl::Status& status) const;
  StatusFacts Facts() const;

  const StepMachineOptions options_;
  const PlacementLimits limits_;
  Election election_;
  Phase phase_ = Phase::kStandby;
  v1::Ballot ballot_;
  std::vector<ShardView> shards_;
  JobState job_;
  absl::Status stopped_;
  // Set if it stopped for a loss that a restore ends (Recovery).
  std::optional<LogPoint> restore_above_;
  // Newest entry of a job that a lost worker stopped, and why it did.
  std::pair<LogPoint, absl::Status> failure_;
  // Number of the newest round at the next position under this ballot; 0 if none was opened.
  uint64_t round_ = 0;
  v1::StepPlan plan_;
  std::string plan_bytes_;
  Shared<v1::CoordinatorToShard> plan_message_;
  Membership membership_;
  WorkerWatch watch_;
  StepDeadline deadline_;
  JoinLimit joins_;
  GradNormWatch grad_norms_;
  StepResults results_;
  // Equal registrations that wait until every shard has applied the entry.
  std::set<CallId> registering_;
  RepeatedComparison comparison_;
  AdminRequests requests_;
  Checkpoints checkpoints_;
  Actions actions_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_H_
