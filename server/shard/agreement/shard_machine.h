// The agreement of one shard as a pure state machine (protocol.md section 2.1): messages and
// completions in, actions out. It does no I/O, starts no thread and reads no clock. Owned by
// ShardCore (or the simulator); one thread at a time. Idempotent under loss, repetition and
// reordering of control messages. The journal must complete in the order of appends.
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
  // `data_loss`: why it never votes, else empty. `durability` is what it says of its journal;
  // `interval_steps` is 0 in other modes than INTERVAL.
  explicit ShardMachine(std::string data_loss = "",
                        v1::DurabilityMode durability = v1::DURABILITY_MODE_NONE,
                        uint32_t interval_steps = 0);

  // `now` serves only to say for how long the holder was silent; no decision depends on it.
  void OnControl(StreamId stream, const v1::CoordinatorToShard& message, absl::Time now);
  // `stream` is listened to from now on: before, its sender was not silent.
  void OnReady(StreamId stream, absl::Time now);
  void OnStreamClosed(StreamId stream);
  // All contributions to the plan of `generation` are folded; `facts` lack the plan. Late: ignored.
  void OnFolded(uint64_t generation, v1::Prepared facts);
  // An error refuses the registration with its message.
  void OnReserved(uint64_t generation, const absl::Status& status);
  void OnDurable(uint64_t token);
  // `total` is what the state digests of all shards must add up to now, where a checkpoint says so:
  // the decision on the next entry tells. One that tells otherwise ends this shard with DATA_LOSS.
  void OnApplied(uint64_t position, uint64_t state_digest,
                 std::optional<uint64_t> total = std::nullopt);
  // A snapshot that was taken in that timeline is durable.
  void OnSnapshot(const v1::SnapshotPoint& snapshot, uint64_t timeline);

  // Replay: the machine stands where what it once appended says it stood; no actions come of it.
  // DATA_LOSS naming both values for a record that does not follow those before.
  absl::Status RestorePromise(const journal::PromiseRecord& promise);
  absl::Status RestorePrepared(const v1::StepPlan& plan, const journal::PrepareRecord& prepare);
  // To be applied; answer with OnApplied.
  absl::Status RestoreDecision(const v1::StepRecord& record);
  // New generations are above `generation`.
  void RestoreGeneration(uint64_t generation);
  // As if everything up to the newest entry of `facts` had been replayed; before anything else.
  void RestoreFacts(const AgreementSnapshot& facts, uint64_t state_digest);

  // The states it can be rolled back to, oldest first; before entries are replayed.
  void RestoreSnapshots(std::vector<v1::SnapshotPoint> snapshots);

  // In the order in which they are to be carried out.
  std::vector<ShardAction> TakeActions();

  // What a new coordinator is told.
  v1::ShardState state() const;

  const v1::Ballot& promised() const { return promised_; }
  bool promise_durable() const { return promise_durable_; }
  const std::string& holder_address() const { return holder_address_; }
  const std::string& data_loss() const { return data_loss_; }
  uint64_t applied_position() const { return applied_position_; }
  // Newest applied train step.
  uint64_t applied_step() const { return applied_step_; }
  uint64_t timeline() const { return timeline_; }
  bool weights_loaded() const { return weights_loaded_; }
  // 0 in other modes than INTERVAL.
  uint32_t interval_steps() const { return interval_steps_; }
  // Of weights, optimizer state and update counters as applied; 0 before registration.
  uint64_t state_digest() const { return state_digest_; }
  // Absent until the registration is applied.
  const std::optional<v1::RegisterBody>& registration() const { return registration_; }
  // Position of this shard in the coordinators' lists; 0 of 0 until told.
  uint32_t shard() const { return shard_; }
  uint32_t num_shards() const { return num_shards_; }
  // Of the newest applied position; and the durable vote for the next, null if there is none.
  const std::optional<v1::StepRecord>& applied_record() const { return applied_record_; }
  const v1::Prepared* held() const { return held_.has_value() ? &held_->prepared : nullptr; }
  // Allotted so far; 0 if none was.
  uint64_t newest_generation() const { return next_generation_ - 1; }
  // Whether a restart forgets that it voted for such a plan, now.
  bool IsVolatile(const v1::StepPlan& plan) const;
  // The plan accepted for applied_position() + 1, folding or prepared, and its generation or 0. In
  // mode INTERVAL that of a restore or a rollback may be for a later position.
  const v1::StepPlan* accepted_plan() const { return accepted_ ? &accepted_->plan : nullptr; }
  uint64_t accepted_generation() const { return accepted_.has_value() ? accepted_->generation : 0; }

 private:
  // What is known of the entry at applied position + 1.
  struct Accepted {
    v1::StepPlan plan;
    uint64_t generation = 0;
    // Set once every contribution is folded.
    std::optional<v1::Prepared> facts;
  };
  // A vote that is durable.
  struct Held {
    v1::StepPlan plan;
    v1::Prepared prepared;
    // Some coordinator may know of it.
    bool told = false;
  };

  void OnProbe(StreamId stream, absl::Time now);
  void OnPromise(StreamId stream, const v1::CoordinatorToShard& message, absl::Time now);
  void OnPlan(StreamId stream, const v1::CoordinatorToShard& message);
  void OnDecision(StreamId stream, const v1::CoordinatorToShard& message);

  // True if the message may be taken further; otherwise it was refused or dropped.
  bool AdmitBallot(StreamId stream, const v1::CoordinatorToShard& message, absl::Time now);
  bool AdmitShardIndex(StreamId stream, const v1::CoordinatorToShard& message);
  // OK if `plan` may be voted for: CheckPosition, and it will be decided as this shard knows it.
  absl::Status CheckPlan(const v1::StepPlan& plan) const;
  // OK if `plan` is for the next position of this shard's log and fits the job.
  absl::Status CheckPosition(const v1::StepPlan& plan) const;
  // The same for a rollback, and that this shard has the state it names.
  absl::Status CheckRollback(const v1::StepPlan& plan) const;
  absl::Status CheckTarget(const v1::SnapshotPoint& target) const;
  // DATA_LOSS naming both digests if what all shards had before this decision is not what the
  // checkpoint had that they took.
  absl::Status CheckRestored(const v1::StepRecord& record) const;
  // `plan` takes the whole state with it, from wherever a restart left this shard.
  bool IsBeyondForgotten(const v1::StepPlan& plan) const;
  // Whether it did.
  bool DropIfDamaged(const v1::SnapshotPoint& snapshot, const absl::Status& status);
  // A restore or a rollback is applied.
  void TakeBack(const v1::StepPlan& plan);
  void Accept(const v1::StepPlan& plan);
  void Restamp(const v1::StepPlan& plan);
  void AppendPrepare();
  void AnswerPrepared();
  void OnPrepareDurable(v1::Prepared prepared);
  void AnswerPromise(StreamId stream);
  // `about` says which message it answers.
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
  // Streams that wait for a promise to be durable, with its ballot.
  std::map<StreamId, v1::Ballot> promise_waiters_;

  uint64_t applied_position_ = 0;
  uint64_t applied_step_ = 0;
  uint64_t timeline_ = 0;
  uint64_t config_revision_ = 0;
  bool weights_loaded_ = false;
  uint64_t state_digest_ = 0;
  // Right after a restore.
  std::optional<uint64_t> total_digest_;
  std::optional<v1::StepRecord> applied_record_;
  std::optional<v1::RegisterBody> registration_;
  // Mode INTERVAL: what a rollback may name, oldest first; and whether it must come to one.
  std::vector<v1::SnapshotPoint> snapshots_;
  bool rollback_needed_ = false;

  std::optional<Accepted> accepted_;
  std::optional<Held> held_;
  std::optional<v1::StepRecord> applying_;

  uint64_t next_generation_ = 1;
  uint64_t next_token_ = 1;
  // Appends that are not durable yet and have a consequence when they are.
  std::map<uint64_t, journal::Record> in_flight_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_AGREEMENT_SHARD_MACHINE_H_
