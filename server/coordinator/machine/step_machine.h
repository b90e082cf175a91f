// One coordinator as a pure state machine (protocol.md section 2): election, recovery,
// registration, rounds, decision. No I/O, clock or threads; its only randomness is seeded. Owned by
// CoordinatorServer or the simulator; one thread. Messages may be lost, doubled and reordered.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_H_
#define KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <random>
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
#include "server/coordinator/machine/checkpoint_run.h"
#include "server/coordinator/machine/decided_record.h"
#include "server/coordinator/machine/election.h"
#include "server/coordinator/machine/grad_norm_watch.h"
#include "server/coordinator/machine/machine_phase.h"
#include "server/coordinator/machine/membership.h"
#include "server/coordinator/machine/pending_calls.h"
#include "server/coordinator/machine/recovery.h"
#include "server/coordinator/machine/restore_order.h"
#include "server/coordinator/machine/step_machine_options.h"
#include "server/coordinator/machine/worker_watch.h"

namespace kaon::coordinator {

class StepMachine {
 public:
  explicit StepMachine(StepMachineOptions options);

  // A stream to shard i is open, or no longer is. Messages of earlier streams need not arrive.
  void OnShardConnected(int shard);
  void OnShardDisconnected(int shard, const absl::Status& why = {});
  void OnShardMessage(int shard, v1::ShardToCoordinator message, absl::Time now);
  // To be called once at the start and then at each WakeAt; calling it more often only sends more.
  void Tick(absl::Time now);
  // The answer to a ReadRecord.
  void OnRecordRead(uint64_t position, const absl::StatusOr<v1::StepRecord>& record);

  // Calls of workers; each is answered by actions. Codes: coordinator.proto. All but CancelCall
  // answer FAILED_PRECONDITION with the holder's address when another coordinator is known to hold
  // the shards, and UNAVAILABLE while nobody is.
  void Register(CallId call, const v1::RegisterJobRequest& request);
  void GetJob(CallId call, const v1::GetJobRequest& request);
  void Join(CallId call, const v1::JoinWorkerRequest& request);
  void Begin(CallId call, const v1::BeginStepRequest& request);
  void Await(CallId call, const v1::AwaitStepRequest& request);
  // Of an admin; codes: admin.proto. Planned at the next boundary between steps.
  void SetGroup(CallId call, const v1::SetGroupRequest& request);
  // Planned at once, or after the entry that is being applied.
  void Restore(CallId call, const RestoreOrder& order);
  void CreateCheckpoint(CallId call, const v1::CreateCheckpointRequest& request);
  // The answer to a FinishCheckpoint with parts.
  void OnCheckpointFinished(uint64_t attempt, const absl::StatusOr<v1::CheckpointSummary>& summary);
  // The caller is gone; nothing more is said to it, and a change not yet planned is dropped.
  void CancelCall(CallId call);

  // Everything to be done since the last time, in order.
  std::vector<CoordinatorAction> TakeActions();
  CoordinatorSnapshot Snapshot() const;
  // It has read every shard under its own ballot and has not been refused since.
  bool IsHolder() const { return phase_ > Phase::kReading; }
  // Not OK once the job cannot go on.
  const absl::Status& stopped() const { return stopped_; }
  const std::set<uint32_t>& lost_workers() const { return membership_.lost(); }
  const GradNormWatch& grad_norms() const { return grad_norms_; }

 private:
  using Phase = MachinePhase;
  void Send(int shard, v1::CoordinatorToShard message, Shared<v1::CoordinatorToShard> body = {});
  void SendPhaseMessage(int shard);
  void SendHeartbeat(int shard);
  void Stand();
  void StepDown();
  void OnState(int shard, const v1::ShardState& state);
  void OnRefused(int shard, const v1::Refused& refused);
  void OnPrepared(int shard, v1::Prepared prepared);
  void OnApplied(int shard, uint64_t position);
  void RecoverWhenAllRead();
  // Where the newest record is no step, asks a shard for those before it until one is.
  void FindStepRecord();
  void ReadStepRecord();
  void Stop(absl::Status reason);
  void OpenStepRound(double multiplier);
  void OpenRound(v1::StepPlan plan);
  void MaybeOpenStepRound();
  // This, and OpenRestore: false if there is none to be planned.
  bool OpenGroupChange();
  void DecideWhenAllPrepared();
  void TakeDecision(const v1::StepPlan& plan, const std::vector<v1::Prepared>& prepared);
  // The decided record becomes the newest; shards that have not applied it are sent it.
  void Adopt(v1::StepRecord record);
  void BecomeReadyWhenAllApplied();
  absl::Status CheckHolder() const;
  // CheckHolder, then NOT_FOUND unless every shard has registered `job`.
  absl::Status CheckJob(absl::string_view job) const;
  // UNAVAILABLE while some shard is silent: it may have another holder by now.
  absl::Status CheckHeard() const;
  // CheckJob, then the reason the job stopped for, then CheckHeard.
  absl::Status CheckRunning(absl::string_view job) const;
  absl::Status CheckAwait(const v1::AwaitStepRequest& request) const;
  absl::StatusOr<v1::JoinWorkerResponse> TryJoin(const v1::JoinWorkerRequest& request);
  absl::StatusOr<v1::BeginStepResponse> TryBegin(const v1::BeginStepRequest& request);
  std::string HolderHint() const;
  v1::JobDescription Describe() const;
  std::string PhaseText() const;
  std::string WorkText() const;
  std::vector<std::string> ShardProblems() const;
  // Ranks the next step waits for that have no stream open.
  std::vector<uint32_t> AbsentWorkers() const;
  void LoseWorkers(absl::Time now);
  bool RegistrationIsApplied() const;
  std::vector<int> ShardsToWaitFor() const;
  uint64_t NextStep() const { return weights_loaded_ ? applied_step_ + 1 : 0; }
  void AnnouncePlan(CallId call, const Waiter& waiter);
  void AnnounceRecord();
  // Whether an Await of this step gets the newest record at once.
  bool IsDecided(uint32_t rank, uint64_t step) const;
  absl::Status TryRegister(CallId call, const v1::JobDefinition& definition);
  absl::Status TakeWorkers(CallId call, const v1::JobDefinition& definition);
  void AnswerRegistrations(const absl::Status& status);
  absl::Status TrySetGroup(CallId call, const v1::SetGroupRequest& request);
  bool IsRepeated(const v1::SetGroupRequest& request) const;
  bool GroupChangeIsOpen() const;
  void AnswerGroupChange(const absl::Status& status);
  absl::Status CheckBegun(const v1::GroupChangeBody& change) const;
  void ForgetSharesOutOfRange();
  void DismissWorkers();
  absl::Status TryCreate(CallId call, const v1::CreateCheckpointRequest& request);
  void StartCheckpoint(const std::string& id, std::optional<CallId> call);
  void MaybeTakeCheckpoint();
  void TickCheckpoint(absl::Time now);
  void AskForParts();
  void OnCheckpointReport(int shard, const v1::CheckpointReport& report);
  void AbandonCheckpoint(const absl::Status& status);
  void EndCheckpoint(const absl::Status& status, bool is_there);
  absl::Status TryRestore(CallId call, const RestoreOrder& order);
  absl::StatusOr<v1::StepPlan> PlanRestore(const RestoreOrder& order) const;
  bool OpenRestore();
  void AnswerRestore(const absl::Status& status);
  void AdoptNewTimeline(const v1::StepPlan& plan);
  bool IsRollingBack() const { return phase_ == Phase::kRound && plan_.has_rollback(); }
  void BeginRollback(const Recovery& recovery);
  bool ReadAgainIfForgotten();
  void FailChanges(const absl::Status& status);
  void FailAwaits(const absl::Status& status);
  void RefuseMultipliers(const Membership::Agreed& agreed);
  void FailAwaitsOfOthers(uint32_t rank, const v1::Attempt& current);

  const StepMachineOptions options_;
  std::mt19937_64 random_;
  Election election_;
  Membership membership_;
  WorkerWatch watch_;
  GradNormWatch grad_norms_;
  Phase phase_ = Phase::kStandby;
  v1::Ballot ballot_;
  std::vector<ShardView> shards_;
  uint64_t position_ = 0;
  DecidedRecord record_;
  // The newest that is a step; absent before the first, and while `wanted_position_` is read.
  DecidedRecord step_record_;
  uint64_t wanted_position_ = 0;  // Of a record to be read from a shard; 0 = none.
  std::optional<v1::RegisterBody> registration_;
  uint64_t timeline_ = 1;
  uint64_t config_revision_ = 0;
  uint64_t applied_step_ = 0;
  bool weights_loaded_ = false;
  absl::Status stopped_;
  // Timeline that ended with the loss of a worker, and why.
  std::pair<uint64_t, absl::Status> failure_;
  // Newest at position_ + 1 under this ballot; 0 if none was opened.
  uint64_t round_ = 0;
  v1::StepPlan plan_;
  std::string plan_bytes_;
  Shared<v1::CoordinatorToShard> plan_message_;
  std::map<CallId, Waiter> waiters_;
  std::set<CallId> registering_;  // Equal ones that wait until every shard has applied it.
  // The one change of groups that waits: for the boundary, or for its entry to be applied.
  std::optional<PendingChange> change_;
  std::optional<PendingRestore> restore_;
  // What the job went on from last, as far as this coordinator has seen it.
  std::optional<checkpoint::RestoredCheckpoint> restored_;
  std::optional<CheckpointRun> run_;
  std::vector<CoordinatorAction> actions_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_H_
