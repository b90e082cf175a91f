// Drives one StepMachine by hand: plays its shards and workers message by message. For one test, on
// its thread.
#ifndef KAON_TESTS_SERVER_COORDINATOR_MACHINE_MACHINE_HARNESS_H_
#define KAON_TESTS_SERVER_COORDINATOR_MACHINE_MACHINE_HARNESS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/coordinator/machine/step_machine.h"

namespace kaon::coordinator {

// What each of two shards that hold TestJob tells after this step; 0: after the initial weights.
v1::ShardState StateAfterStep(uint64_t step);

class MachineHarness {
 public:
  explicit MachineHarness(int num_shards = 2, std::string address = "coordinator-a:1");

  StepMachine& machine() { return machine_; }
  v1::Ballot ballot() { return machine_.Snapshot().ballot; }
  std::string phase() { return machine_.Snapshot().phase; }
  int num_shards() const { return num_shards_; }

  // Lets `by` pass, then ticks.
  void Tick(absl::Duration by = absl::Milliseconds(100));
  // `promised` defaults to the machine's own ballot.
  void FromShard(int shard, v1::ShardToCoordinator message,
                 std::optional<v1::Ballot> promised = std::nullopt);
  // A probe's answer: the holder has been silent for `silent_ms`.
  void Probed(int shard, uint64_t silent_ms, const v1::Ballot& promised, const std::string& holder);
  void State(int shard, const v1::ShardState& state);
  // Vote of `shard` for `plan`, with one sum of squares 0.25 per trained parameter of its own.
  v1::Prepared VoteFor(const v1::StepPlan& plan, int shard);
  void Vote(int shard, const v1::StepPlan& plan);
  void Applied(int shard, uint64_t position);
  // Some message that carried neither plan nor decision is refused under `promised`.
  void Refuse(int shard, v1::RefusalReason reason, const std::string& detail,
              const v1::Ballot& promised, const std::string& holder);
  // `plan`, or the decision of it, is refused as INVALID; `promised` defaults to the machine's own
  // ballot.
  void RefusePlan(int shard, const std::string& detail, const v1::StepPlan& plan,
                  std::optional<v1::Ballot> promised = std::nullopt,
                  v1::RefusalReason reason = v1::REFUSAL_REASON_INVALID);
  void RefuseDecision(int shard, const std::string& detail, const v1::StepPlan& plan,
                      v1::RefusalReason reason = v1::REFUSAL_REASON_INVALID);

  // Connects every shard and makes the machine stand, without answering its promise. The shards
  // have promised `promised` before.
  void Stand(const v1::Ballot& promised = {});
  // Stand, then all shards answer that they hold `state`.
  void Hold(const v1::ShardState& state = {}, const v1::Ballot& promised = {});
  // The newest plan is voted for and applied by every shard.
  v1::StepRecord VoteAndApply();
  // Hold, then register the job, TestJob(world_size), and load its weights; every rank has joined
  // with nonce 100 + rank.
  void Train(uint32_t world_size = 2);
  void Train(const v1::JobDefinition& job);

  absl::StatusOr<v1::JobDescription> Register(const v1::JobDefinition& job);
  absl::StatusOr<v1::JobDescription> GetJob();
  absl::StatusOr<v1::JoinWorkerResponse> Join(const v1::JoinWorkerRequest& request);
  absl::StatusOr<v1::JoinWorkerResponse> Join(uint32_t rank, uint64_t nonce);
  absl::StatusOr<v1::BeginStepResponse> Begin(const v1::BeginStepRequest& request);
  // With token weight 1 and the attempt the rank last joined with.
  absl::StatusOr<v1::BeginStepResponse> Begin(uint32_t rank, uint64_t step);
  v1::BeginStepRequest BeginRequest(uint32_t rank, uint64_t step);
  // How a call of machine().Register was answered; it must have been.
  absl::Status registered(CallId call) {
    return std::get<ReplyRegister>(replies_.at(call)).response.status();
  }
  // Sets adamw's learning rate; how it was answered is in set(call).
  CallId SetRate(const std::string& lr, uint64_t expected_revision);
  CallId SetGroup(const v1::SetGroupRequest& request);
  // Nothing while it is open.
  std::optional<absl::StatusOr<v1::SetGroupResponse>> set(CallId call);
  CallId Restore(const RestoreOrder& order);
  // Nothing while it is open.
  std::optional<absl::StatusOr<v1::RestoreCheckpointResponse>> restored(CallId call);
  // Names the timeline that the job is in.
  CallId Delete(const std::string& job, uint64_t request_id = 0);
  CallId Delete(const v1::DeleteJobRequest& request);
  // Nothing while it is open.
  std::optional<absl::StatusOr<v1::DeleteJobResponse>> deleted(CallId call);
  CallId Create(const std::string& id);
  std::optional<absl::StatusOr<v1::CreateCheckpointResponse>> created(CallId call);
  CallId DrainShard(uint32_t shard);
  // Nothing while it is open.
  std::optional<absl::StatusOr<v1::DrainShardResponse>> drained(CallId call);
  void Disconnect(int shard, const absl::Status& why);
  void Connect(int shard);
  // What was to be finished or given up, in order.
  const std::vector<FinishCheckpoint>& finished() const { return finished_; }
  // Of the newest attempt at a checkpoint that shards were asked for; 0 before.
  uint64_t attempt() const { return attempt_; }
  // The newest attempt was.
  void CheckpointFinished(const absl::StatusOr<v1::CheckpointSummary>& summary);
  // Positions whose records were asked for since the last ClearSent.
  const std::vector<uint64_t>& reads() const { return reads_; }
  void RecordRead(uint64_t position, const absl::StatusOr<v1::StepRecord>& record);
  // Shards that were asked whose gradients they lack, since the last ClearSent.
  const std::vector<int>& asked() const { return asked_; }
  // `shard` lacks those of these ranks for this plan.
  void Awaited(int shard, const std::vector<uint32_t>& ranks, const v1::StepPlan& plan);
  // A stream; its events are in events(call).
  CallId Await(uint32_t rank, uint64_t step);
  // Its caller is gone.
  void HangUp(CallId call);
  const std::vector<v1::StepEvent>& events(CallId call) { return events_[call]; }
  // How the stream ended; nothing while it is open.
  std::optional<absl::Status> ended(CallId call);

  // Messages sent to a shard since the last ClearSent; the newest of a kind.
  const std::vector<v1::CoordinatorToShard>& sent(int shard) { return sent_[shard]; }
  void ClearSent();
  std::optional<v1::StepPlan> SentPlan(int shard);
  std::optional<v1::StepRecord> SentRecord(int shard);
  bool SentPromise(int shard);
  // The holder named with the last refusal.
  const std::string& holder_address() const { return holder_address_; }

 private:
  void Drain();

  const int num_shards_;
  StepMachine machine_;
  absl::Time now_ = absl::UnixEpoch();
  CallId last_call_ = 0;
  std::map<uint32_t, v1::JoinWorkerResponse> joined_;
  std::map<int, std::vector<v1::CoordinatorToShard>> sent_;
  std::vector<uint64_t> reads_;
  std::vector<int> asked_;
  std::vector<FinishCheckpoint> finished_;
  uint64_t attempt_ = 0;
  std::map<CallId, CoordinatorAction> replies_;
  std::map<CallId, std::vector<v1::StepEvent>> events_;
  std::map<CallId, absl::Status> ended_;
  std::string holder_address_;
};

}  // namespace kaon::coordinator

#endif  // KAON_TESTS_SERVER_COORDINATOR_MACHINE_MACHINE_HARNESS_H_
