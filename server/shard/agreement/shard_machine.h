// The agreement of one shard as a pure state machine (protocol.md section 2.1): messages and
// completions in, actions out. It does no I/O, starts no thread and reads no clock. ShardCore or
// the simulator owns it; one thread at a time. Control messages may be lost, repeated or reordered.
// The journal must complete appends in their order.
#ifndef KAON_SERVER_SHARD_AGREEMENT_SHARD_MACHINE_H_
#define KAON_SERVER_SHARD_AGREEMENT_SHARD_MACHINE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/journal/record.h"
#include "server/shard/agreement/agreement_snapshot.h"
#include "server/shard/agreement/shard_action.h"

namespace kaon::shard {

class ShardMachine {
 public:
  // `data_loss`: why this shard never votes; empty if it may vote. `durability` is the mode of its
  // journal. `interval_steps` is 0 in all modes but INTERVAL.
  explicit ShardMachine(std::string data_loss = "",
                        v1::DurabilityMode durability = v1::DURABILITY_MODE_NONE,
                        uint32_t interval_steps = 0);

  // `now` is used only to report how long the holder was silent. No decision depends on it.
  void OnControl(StreamId stream, const v1::CoordinatorToShard& message, absl::Time now);
  // Starts to listen to `stream`. Silence before this call is not counted against its sender.
  void OnReady(StreamId stream, absl::Time now);
  void OnStreamClosed(StreamId stream);
  // All contributions to the plan of `generation` are folded. `facts` lack the plan. Ignores an
  // outdated generation.
  void OnFolded(uint64_t generation, v1::Prepared facts);
  // An error refuses the registration with its message.
  void OnReserved(uint64_t generation, const absl::Status& status);
  void OnDurable(uint64_t token);
  // `total`: the sum of all shards' state digests according to a checkpoint, if it has one. If the
  // decision on the next entry shows another sum, this shard stops with DATA_LOSS.
  void OnApplied(uint64_t position, uint64_t state_digest,
                 std::optional<uint64_t> total = std::nullopt);
  // A snapshot taken in `timeline` is durable.
  void OnSnapshot(const v1::SnapshotPoint& snapshot, uint64_t timeline);

  // Replay: each call restores the state that the appended record describes, without any action.
  // Returns DATA_LOSS naming both values if the record does not follow the earlier ones.
  absl::Status RestorePromise(const journal::PromiseRecord& promise);
  absl::Status RestorePrepared(const v1::StepPlan& plan, const journal::PrepareRecord& prepare);
  // The caller applies `record`, then calls OnApplied.
  absl::Status RestoreDecision(const v1::StepRecord& record);
  // Makes all new generations greater than `generation`.
  void RestoreGeneration(uint64_t generation);
  // Restores the state after the newest entry of `facts`. Call it before records are replayed.
  void RestoreFacts(const AgreementSnapshot& facts, uint64_t state_digest);
  // Sets the states that a rollback may name, oldest first. Call it before entries are replayed.
  void RestoreSnapshots(std::vector<v1::SnapshotPoint> snapshots);

  // Returns the pending actions, in the order to perform them.
  std::vector<ShardAction> TakeActions();

  // Returns the state that a new coordinator reads.
  v1::ShardState state() const;
  const v1::Ballot& promised() const { return promised_; }
  bool promise_durable() const { return promise_durable_; }
  const std::string& holder_address() const { return holder_address_; }
  const std::string& data_loss() const { return data_loss_; }
  uint64_t applied_position() const { return applied_position_; }
  // Newest applied train step.
  uint64_t applied_step() const { return applied_step_; }
  // Timeline of the job, or of the deleted one; 0 before the first.
  uint64_t timeline() const { return timeline_; }
  // Name of the job that the newest applied entry deleted; empty if that is another entry.
  std::string deleted_job() const;
  bool weights_loaded() const { return weights_loaded_; }
  // 0 in all modes but INTERVAL.
  uint32_t interval_steps() const { return interval_steps_; }
  // Digest of applied weights, optimizer state and update counters; 0 before registration.
  uint64_t state_digest() const { return state_digest_; }
  // Absent until the registration is applied, and after a deletion.
  const std::optional<v1::RegisterBody>& registration() const { return registration_; }
  // Position of this shard in the coordinators' lists, and their length. Both are 0 until known.
  uint32_t shard() const { return shard_; }
  uint32_t num_shards() const { return num_shards_; }
  // Record of the newest applied position, and the durable vote for the next (null if none).
  const std::optional<v1::StepRecord>& applied_record() const { return applied_record_; }
  const v1::Prepared* held() const { return held_.has_value() ? &held_->prepared : nullptr; }
  // Newest generation allotted so far; 0 if none.
  uint64_t newest_generation() const { return next_generation_ - 1; }
  // Returns true if a restart now would forget a vote for `plan`.
  bool IsVolatile(const v1::StepPlan& plan) const;
  // The plan accepted for applied_position() + 1, folding or prepared, and its generation (0 if
  // none). In mode INTERVAL, a restore or a rollback may be for a later position.
  const v1::StepPlan* accepted_plan() const { return accepted_ ? &accepted_->plan : nullptr; }
  uint64_t accepted_generation() const { return accepted_.has_value() ? accepted_->generation : 0; }

 private:
  // State of the entry at applied position + 1.
  struct Accepted {
    v1::StepPlan plan;
    uint64_t generation = 0;
    // Set once every contribution is folded.
    std::optional<v1::Prepared> facts;
  };
  // A durable vote.
  struct Held {
    v1::StepPlan plan;
    v1::Prepared prepared;
    // A coordinator may know the vote.
    bool told = false;
  };

  void OnProbe(StreamId stream, absl::Time now);
  void OnPromise(StreamId stream, const v1::CoordinatorToShard& message, absl::Time now);
  void OnPlan(StreamId stream, const v1::CoordinatorToShard& message);
  void OnDecision(StreamId stream, const v1::CoordinatorToShard& message);

  // Returns true if the message may be processed. Otherwise it was refused or dropped.
  bool AdmitBallot(StreamId stream, const v1::CoordinatorToShard& message, absl::Time now);
  bool AdmitShardIndex(StreamId stream, const v1::CoordinatorToShard& message);
  // Returns OK if the shard may vote for `plan`: CheckPosition, the decide() version and
  // CheckTarget.
  absl::Status CheckPlan(const v1::StepPlan& plan) const;
  // Returns OK if `plan` is for the next position of this shard's log and fits the job.
  absl::Status CheckPosition(const v1::StepPlan& plan) const;
  // Returns whether `plan` is a restore in place of entries that this shard has not, or forgot.
  bool LeavesOut(const v1::StepPlan& plan) const;
  // CheckPosition of a rollback, or of a restore that leaves out entries.
  absl::Status CheckRollback(const v1::StepPlan& plan) const;
  // Returns OK if this shard has the snapshot that a rollback names.
  absl::Status CheckTarget(const v1::SnapshotPoint& target) const;
  // Returns DATA_LOSS naming both digests if the state of all shards before this decision differs
  // from the checkpoint that they restored.
  absl::Status CheckRestored(const v1::StepRecord& record) const;
  // Returns true if `plan` replaces the whole state, so it may skip positions that a restart lost.
  bool IsBeyondForgotten(const v1::StepPlan& plan) const;
  // Forgets `snapshot` if `status` says that it is damaged. Returns whether it did.
  bool DropIfDamaged(const v1::SnapshotPoint& snapshot, const absl::Status& status);
  // Updates the agreement for an applied restore, rollback or deletion.
  void ReplaceState(const v1::StepPlan& plan);
  void Accept(const v1::StepPlan& plan);
  void Restamp(const v1::StepPlan& plan);
  void AppendPrepare();
  void AnswerPrepared();
  void OnPrepareDurable(v1::Prepared prepared);
  void AnswerPromise(StreamId stream);
  // `about` says which message is refused.
  void Refuse(StreamId stream, v1::RefusalReason reason, std::string detail, v1::Refused about);
  void Send(StreamId stream, v1::ShardToCoordinator message);
  uint64_t Append(journal::Record record);

  std::string data_loss_;
  const v1::DurabilityMode durability_;
  const uint32_t interval_steps_;
  std::vector<ShardAction> actions_;

  bool placed_ = false;
  uint32_t shard_ = 0;
  uint32_t num_shards_ = 0;

  v1::Ballot promised_;
  bool promise_durable_ = false;
  std::string holder_address_;
  std::optional<StreamId> holder_stream_;
  std::optional<absl::Time> holder_heard_;
  // Streams that wait for a durable promise, with its ballot.
  std::map<StreamId, v1::Ballot> promise_waiters_;

  uint64_t applied_position_ = 0;
  uint64_t applied_step_ = 0;
  uint64_t timeline_ = 0;
  uint64_t config_revision_ = 0;
  bool weights_loaded_ = false;
  uint64_t state_digest_ = 0;
  // Set right after a restore.
  std::optional<uint64_t> total_digest_;
  std::optional<v1::StepRecord> applied_record_;
  std::optional<v1::RegisterBody> registration_;
  // Mode INTERVAL: states that a rollback may name, oldest first, and whether a rollback is needed.
  std::vector<v1::SnapshotPoint> snapshots_;
  bool rollback_needed_ = false;

  std::optional<Accepted> accepted_;
  std::optional<Held> held_;
  std::optional<v1::StepRecord> applying_;

  uint64_t next_generation_ = 1;
  uint64_t next_token_ = 1;
  // Appends that are not durable yet and need an action when they are.
  std::map<uint64_t, journal::Record> in_flight_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_AGREEMENT_SHARD_MACHINE_H_
