#include "server/shard/agreement/shard_machine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/settings.h"
#include "proto/ballot.h"
#include "proto/decide_version.h"
#include "proto/status_macros.h"
#include "server/mutation/mutation.h"
#include "server/shard/agreement/plan_check.h"

namespace kaon::shard {

namespace {

v1::RefusalReason ReasonOf(const absl::Status& status) {
  if (absl::IsDataLoss(status)) return v1::REFUSAL_REASON_DATA_LOSS;
  return status.code() == absl::StatusCode::kFailedPrecondition ? v1::REFUSAL_REASON_STALE_PLAN
                                                                : v1::REFUSAL_REASON_INVALID;
}

// Returns the identification of `plan` for a refusal.
v1::Refused About(const v1::StepPlan& plan) {
  v1::Refused about;
  about.set_position(plan.position());
  *about.mutable_ballot() = plan.ballot();
  about.set_round(plan.round());
  return about;
}

v1::Refused About(const v1::CoordinatorToShard& message) {
  if (message.has_plan()) return About(message.plan());
  if (!message.has_decision()) return {};
  v1::Refused about = About(message.decision().plan());
  about.set_decision(true);
  return about;
}

}  // namespace

ShardMachine::ShardMachine(std::string data_loss, v1::DurabilityMode durability,
                           uint32_t interval_steps)
    : data_loss_(std::move(data_loss)), durability_(durability), interval_steps_(interval_steps) {}

void ShardMachine::OnControl(StreamId stream, const v1::CoordinatorToShard& message,
                             absl::Time now) {
  if (!AdmitShardIndex(stream, message)) return;
  if (message.has_probe()) return OnProbe(stream, now);
  if (message.body_case() == v1::CoordinatorToShard::BODY_NOT_SET) {
    return Refuse(stream, v1::REFUSAL_REASON_INVALID, "control message without a body", {});
  }
  // Rule 1: "... So every decision is final, and DECISION itself needs no fence."
  if (message.has_decision()) OnDecision(stream, message);
  if (!AdmitBallot(stream, message, now)) return;
  switch (message.body_case()) {
    case v1::CoordinatorToShard::kPromise:
      return OnPromise(stream, message, now);
    case v1::CoordinatorToShard::kPlan:
      return OnPlan(stream, message);
    case v1::CoordinatorToShard::kCheckpoint:
      if (data_loss_.empty()) actions_.push_back(WriteCheckpoint{stream, message.checkpoint()});
      return;
    case v1::CoordinatorToShard::kHeartbeat:
      if (promise_durable_) {
        v1::ShardToCoordinator reply;
        reply.mutable_heartbeat();
        Send(stream, std::move(reply));
      }
      return;
    default:
      return;
  }
}

void ShardMachine::OnReady(StreamId stream, absl::Time now) {
  if (holder_stream_ == stream) holder_heard_ = now;
}

void ShardMachine::OnStreamClosed(StreamId stream) {
  promise_waiters_.erase(stream);
  if (holder_stream_ == stream) holder_stream_.reset();
}

bool ShardMachine::AdmitShardIndex(StreamId stream, const v1::CoordinatorToShard& message) {
  if (message.shard() >= message.num_shards()) {
    actions_.push_back(
        EndStream{stream, absl::InvalidArgumentError(
                              absl::StrCat("shard ", message.shard(), " of ", message.num_shards(),
                                           ", expecting an index below the number of shards"))});
    return false;
  }
  // Before a promise, accept any index: a coordinator with a wrong list of shards may only be
  // probing. Only a promise binds the index.
  if (!placed_) {
    shard_ = message.shard();
    num_shards_ = message.num_shards();
  }
  if (message.shard() != shard_ || message.num_shards() != num_shards_) {
    actions_.push_back(EndStream{
        stream, absl::FailedPreconditionError(absl::StrCat(
                    "this is shard ", shard_, " of ", num_shards_, ", addressed as shard ",
                    message.shard(), " of ", message.num_shards(),
                    ": start every coordinator with the list of shards that the job began with"))});
    return false;
  }
  return true;
}

bool ShardMachine::AdmitBallot(StreamId stream, const v1::CoordinatorToShard& message,
                               absl::Time now) {
  if (message.ballot().counter() == 0) {
    Refuse(stream, v1::REFUSAL_REASON_INVALID, "ballot counter is 0, expecting >= 1",
           About(message));
    return false;
  }
  if (Mutated(Mutation::kLowerBallotsAnswered)) promised_ = message.ballot();
  const int order = proto::Compare(message.ballot(), promised_);
  // Rule 1: "After promising b a shard sends no answer, PREPARE included, to a lower ballot."
  if (order < 0) {
    Refuse(stream, v1::REFUSAL_REASON_OLD_BALLOT,
           absl::StrCat("ballot ", proto::ToString(message.ballot()), ", promised ",
                        proto::ToString(promised_)),
           About(message));
    return false;
  }
  if (order > 0) {
    if (message.has_promise()) return true;
    // Rule 4: only "from the promised ballot".
    if (message.has_plan()) {
      Refuse(stream, v1::REFUSAL_REASON_STALE_PLAN,
             absl::StrCat("plan of ballot ", proto::ToString(message.ballot()),
                          " without its promise, promised ", proto::ToString(promised_)),
             About(message));
    }
    return false;
  }
  holder_stream_ = stream;
  holder_heard_ = now;
  if (!message.holder_address().empty()) holder_address_ = message.holder_address();
  return true;
}

void ShardMachine::OnProbe(StreamId stream, absl::Time now) {
  v1::ShardToCoordinator reply;
  v1::ProbeReply* probed = reply.mutable_probed();
  probed->set_holder_address(holder_address_);
  probed->set_holder_silent_ms(holder_heard_.has_value()
                                   ? static_cast<uint64_t>(std::max<int64_t>(
                                         0, absl::ToInt64Milliseconds(now - *holder_heard_)))
                                   : static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  Send(stream, std::move(reply));
}

void ShardMachine::OnPromise(StreamId stream, const v1::CoordinatorToShard& message,
                             absl::Time now) {
  if (proto::Compare(message.ballot(), promised_) > 0) {
    for (const auto& [waiter, ballot] : std::exchange(promise_waiters_, {})) {
      if (waiter == stream) continue;
      Refuse(waiter, v1::REFUSAL_REASON_OLD_BALLOT,
             absl::StrCat("ballot ", proto::ToString(ballot), ", promised ",
                          proto::ToString(message.ballot())),
             {});
    }
    placed_ = true;
    promised_ = message.ballot();
    promise_durable_ = false;
    holder_address_ = message.holder_address();
    holder_stream_ = stream;
    holder_heard_ = now;
    promise_waiters_[stream] = promised_;
    // Rule 5: "Promise and timeline are durable in every mode but `none`".
    const journal::PromiseRecord record{promised_, shard_, num_shards_};
    in_flight_[Append(record)] = record;
    if (Mutated(Mutation::kPromiseWithdraws)) {
      accepted_.reset();
      held_.reset();
    }
    if (Mutated(Mutation::kPromiseAnsweredUnsynced)) OnDurable(next_token_ - 1);
    return;
  }
  if (promise_durable_) return AnswerPromise(stream);
  promise_waiters_[stream] = promised_;
}

void ShardMachine::AnswerPromise(StreamId stream) {
  v1::ShardToCoordinator reply;
  // Rule 4: "A promise withdraws nothing". The held PREPARE is part of the answer.
  *reply.mutable_state() = state();
  Send(stream, std::move(reply));
}

absl::Status ShardMachine::CheckPlan(const v1::StepPlan& plan) const {
  if (plan.decide_version() != proto::kDecideVersion) {
    return absl::InvalidArgumentError(absl::StrCat("decide() version ", plan.decide_version(),
                                                   " planned, this shard knows ",
                                                   proto::kDecideVersion));
  }
  KAON_RETURN_IF_ERROR(CheckPosition(plan));
  return plan.has_rollback() ? CheckTarget(plan.rollback().target()) : absl::OkStatus();
}

// Protocol.md 2.2: steps and control changes share one numbering and the same unanimous PREPARE. A
// shard holds at most one PREPARE. It accepts only position applied + 1 with its applied revision.
absl::Status ShardMachine::CheckPosition(const v1::StepPlan& plan) const {
  if (plan.round() == 0) return absl::InvalidArgumentError("round is 0, expecting >= 1");
  if (plan.has_rollback() || LeavesOut(plan)) return CheckRollback(plan);
  if (rollback_needed_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "position ", plan.position(), " planned, but this shard restarted at step ", applied_step_,
        " and has forgotten what it voted for since: a rollback is "
        "needed"));
  }
  if (plan.position() != applied_position_ + 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("position ", plan.position(), " planned, expecting ", applied_position_ + 1));
  }
  if (applying_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("position ", plan.position(), " is decided"));
  }
  // A new timeline fences the workers of a deleted job.
  const uint64_t timeline = timeline_ + (registration_.has_value() ? 0 : 1);
  if (plan.has_restore() && plan.timeline() <= timeline_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "timeline ", plan.timeline(), " planned by a restore, expecting above ", timeline_));
  }
  if (!plan.has_restore() && plan.timeline() != timeline) {
    return absl::FailedPreconditionError(
        absl::StrCat("timeline ", plan.timeline(), " planned, expecting ", timeline));
  }
  if (plan.config_revision() != config_revision_) {
    return absl::FailedPreconditionError(absl::StrCat("config revision ", plan.config_revision(),
                                                      " planned, applied is ", config_revision_));
  }
  JobProgress progress;
  progress.registration = registration_.has_value() ? &*registration_ : nullptr;
  progress.applied_step = applied_step_;
  progress.weights_loaded = weights_loaded_;
  return CheckPlanBody(progress, plan);
}

void ShardMachine::OnPlan(StreamId stream, const v1::CoordinatorToShard& message) {
  const v1::StepPlan& plan = message.plan();
  if (!data_loss_.empty()) {
    return Refuse(stream, v1::REFUSAL_REASON_DATA_LOSS, data_loss_, About(plan));
  }
  // A coordinator plans only after it read this shard's durable promise, so this plan is not early.
  // Drop it; the coordinator resends it.
  if (!promise_durable_) return;
  if (proto::Compare(plan.ballot(), promised_) != 0) {
    return Refuse(stream, v1::REFUSAL_REASON_INVALID,
                  absl::StrCat("plan of ballot ", proto::ToString(plan.ballot()),
                               " sent under ballot ", proto::ToString(promised_)),
                  About(plan));
  }
  if (const absl::Status status = CheckPlan(plan); !status.ok()) {
    return Refuse(stream, ReasonOf(status), std::string(status.message()), About(plan));
  }
  if (!accepted_.has_value()) return Accept(plan);
  const int order = proto::CompareRound(plan, accepted_->plan);
  if (order == 0 && proto::Alike(plan, accepted_->plan)) return AnswerPrepared();
  // Rule 4: "A shard refuses (ballot, round) at or below its PREPARE's."
  if (order <= 0 && !Mutated(Mutation::kLowerRoundReplaces)) {
    return Refuse(stream, v1::REFUSAL_REASON_STALE_PLAN,
                  absl::StrCat("plan of ", DescribeStamp(plan), ", expecting above ",
                               DescribeStamp(accepted_->plan)),
                  About(plan));
  }
  if (proto::AlikeButForRound(plan, accepted_->plan)) return Restamp(plan);
  // The journal still reads the gradient that this plan would overwrite. Drop the plan; the
  // coordinator resends it.
  const bool is_read = accepted_->facts.has_value() && !held_.has_value();
  if (is_read && !Mutated(Mutation::kJournaledGradientOverwritten)) return;
  Accept(plan);
}

void ShardMachine::Accept(const v1::StepPlan& plan) {
  // Rule 4: "Only an accepted PLAN with higher (ballot, round), from the promised ballot, at
  // position applied + 1, does" withdraw a PREPARE.
  held_.reset();
  accepted_ = Accepted{plan, next_generation_++, std::nullopt};
  if (NeedsMemory(plan, registration_.has_value() ? &*registration_ : nullptr)) {
    actions_.push_back(ReserveJob{plan, accepted_->generation});
  } else if (plan.has_group_change() || plan.has_job_deletion()) {
    // Nothing to collect: the entry was checked completely and needs no memory.
    OnFolded(accepted_->generation, v1::Prepared());
  } else {
    actions_.push_back(BeginFolding{plan, accepted_->generation});
  }
}

void ShardMachine::Restamp(const v1::StepPlan& plan) {
  // Rule 2: "A PLAN that differs from the held PREPARE only in (ballot, round) is re-stamped
  // durably without a re-push."
  accepted_->plan = plan;
  // Control changes are not folded.
  if (plan.has_step()) actions_.push_back(RestampPlan{plan});
  if (accepted_->facts.has_value()) AppendPrepare();
  if (Mutated(Mutation::kRestampUnsynced) && accepted_->facts.has_value()) {
    OnDurable(next_token_ - 1);
  }
}

void ShardMachine::OnFolded(uint64_t generation, v1::Prepared facts) {
  if (!accepted_.has_value() || accepted_->generation != generation || accepted_->facts.has_value())
    return;
  accepted_->facts = std::move(facts);
  AppendPrepare();
}

void ShardMachine::OnReserved(uint64_t generation, const absl::Status& status) {
  if (status.ok()) return OnFolded(generation, v1::Prepared());
  if (!accepted_.has_value() || accepted_->generation != generation) return;
  v1::Refused about = About(accepted_->plan);
  v1::RefusalReason reason = v1::REFUSAL_REASON_INVALID;
  // After an error other than damage the snapshot may be intact: the holder resends the plan.
  if (accepted_->plan.has_rollback() &&
      !DropIfDamaged(accepted_->plan.rollback().target(), status)) {
    reason = v1::REFUSAL_REASON_STALE_PLAN;
  }
  accepted_.reset();
  if (holder_stream_.has_value()) {
    Refuse(*holder_stream_, reason, std::string(status.message()), std::move(about));
  }
}

void ShardMachine::AppendPrepare() {
  v1::Prepared prepared = *accepted_->facts;
  prepared.set_plan(accepted_->plan.SerializeAsString());
  prepared.set_state_digest(state_digest_);
  const journal::PrepareRecord record{std::move(prepared), accepted_->generation};
  in_flight_[Append(record)] = record;
  if (Mutated(Mutation::kPrepareAnsweredUnsynced)) OnDurable(next_token_ - 1);
}

void ShardMachine::OnDurable(uint64_t token) {
  const auto found = in_flight_.find(token);
  if (found == in_flight_.end()) return;
  const journal::Record record = std::move(found->second);
  in_flight_.erase(found);
  if (const auto* prepare = std::get_if<journal::PrepareRecord>(&record)) {
    return OnPrepareDurable(prepare->prepared);
  }
  const auto& promise = std::get<journal::PromiseRecord>(record);
  if (proto::Compare(promise.ballot, promised_) != 0) return;
  promise_durable_ = true;
  // Rule 1: only answers "sent after that shard's promise was durable, count".
  for (const auto& [stream, ballot] : std::exchange(promise_waiters_, {})) AnswerPromise(stream);
  // Only the first answer counts: a repetition may contain more, but a holder uses what it read
  // first.
  if (held_.has_value()) held_->told = true;
}

void ShardMachine::OnPrepareDurable(v1::Prepared prepared) {
  v1::StepPlan plan;
  // `plan` is this shard's own serialization. It may have been withdrawn since.
  if (!plan.ParseFromString(prepared.plan()) || !accepted_.has_value() ||
      !accepted_->facts.has_value() || !proto::AlikeButForRound(plan, accepted_->plan)) {
    return;
  }
  // A new stamp on the same vote keeps `told`.
  const bool told = held_.has_value() && held_->told;
  held_ = Held{std::move(plan), std::move(prepared), told};
  AnswerPrepared();
}

void ShardMachine::AnswerPrepared() {
  // A re-stamp that is not durable yet answers later; a plan of an older ballot never (rule 1).
  if (!held_.has_value() || !holder_stream_.has_value() || !promise_durable_ ||
      !proto::Alike(held_->plan, accepted_->plan) ||
      proto::Compare(held_->plan.ballot(), promised_) != 0) {
    return;
  }
  v1::ShardToCoordinator reply;
  *reply.mutable_prepared() = held_->prepared;
  held_->told = true;
  Send(*holder_stream_, std::move(reply));
}

void ShardMachine::OnDecision(StreamId stream, const v1::CoordinatorToShard& message) {
  const v1::StepRecord& record = message.decision();
  const uint64_t position = record.plan().position();
  const bool may_answer = proto::Compare(message.ballot(), promised_) >= 0;
  if (!data_loss_.empty()) {
    if (may_answer) Refuse(stream, v1::REFUSAL_REASON_DATA_LOSS, data_loss_, About(message));
    return;
  }
  if (position <= applied_position_) {
    if (!may_answer) return;
    v1::ShardToCoordinator reply;
    reply.mutable_applied()->set_position(position);
    return Send(stream, std::move(reply));
  }
  // A later entry cannot be decided while this shard has no PREPARE for it. An entry being applied
  // answers when it is done.
  const bool is_held = held_.has_value() && held_->plan.position() == position;
  if ((position > applied_position_ + 1 && !is_held) || applying_.has_value()) return;
  absl::Status status =
      CheckDecision(registration_.has_value() ? &*registration_ : nullptr, record);
  if (status.ok() && (!held_.has_value() || !proto::Alike(held_->plan, record.plan()))) {
    status = absl::FailedPreconditionError(absl::StrCat(
        "decision of position ", position, " with the plan of ", DescribeStamp(record.plan()),
        ", held is ", held_.has_value() ? DescribeStamp(held_->plan) : std::string("no PREPARE")));
  }
  if (status.ok()) {
    status = CheckRestored(record);
    data_loss_ = std::string(status.message());
  }
  if (!status.ok()) {
    if (may_answer) {
      Refuse(stream, ReasonOf(status), std::string(status.message()), About(message));
    }
    return;
  }
  applying_ = record;
  // Rule 5: "The record of every log entry n, step or control change, is durable in the same write
  // as, or before, PREPARE(n+1)". So append it before anything of entry n + 1.
  if (!Mutated(Mutation::kDecisionNotJournaled)) Append(journal::DecisionRecord{record});
  actions_.push_back(ApplyRecord{record});
}

void ShardMachine::OnApplied(uint64_t position, uint64_t state_digest,
                             std::optional<uint64_t> total) {
  if (!applying_.has_value() || applying_->plan().position() != position) return;
  total_digest_ = total;
  const v1::StepPlan& plan = applying_->plan();
  const bool applied = applying_->decision().outcome() == v1::OUTCOME_APPLY;
  applied_position_ = position;
  state_digest_ = state_digest;
  if (plan.has_registration()) {
    config_revision_ = position;
    if (applied) {
      registration_ = plan.registration();
      timeline_ = plan.timeline();
    }
  } else if (plan.has_restore() || plan.has_rollback() || plan.has_job_deletion()) {
    ReplaceState(plan);
  } else if (plan.has_group_change()) {
    config_revision_ = position;
    if (applied) job::ApplyGroupChange(plan.group_change(), *registration_);
  } else if (plan.step().kind() == v1::STEP_KIND_TRAIN) {
    applied_step_ = plan.step().step();
  } else {
    weights_loaded_ = applied;
  }
  applied_record_ = std::exchange(applying_, std::nullopt);
  accepted_.reset();
  held_.reset();
  if (!holder_stream_.has_value() || !promise_durable_) return;
  v1::ShardToCoordinator reply;
  reply.mutable_applied()->set_position(position);
  Send(*holder_stream_, std::move(reply));
}

std::vector<ShardAction> ShardMachine::TakeActions() { return std::exchange(actions_, {}); }

v1::ShardState ShardMachine::state() const {
  v1::ShardState state;
  state.set_applied_position(applied_position_);
  state.set_applied_step(applied_step_);
  state.set_timeline(timeline_);
  state.set_config_revision(config_revision_);
  if (applied_record_.has_value()) *state.mutable_applied_record() = *applied_record_;
  if (registration_.has_value()) *state.mutable_registration() = *registration_;
  state.set_weights_loaded(weights_loaded_);
  if (held_.has_value()) *state.mutable_prepared() = held_->prepared;
  state.set_data_loss(data_loss_);
  state.set_durability(durability_);
  state.set_interval_steps(interval_steps_);
  for (const v1::SnapshotPoint& snapshot : snapshots_) *state.add_snapshots() = snapshot;
  state.set_rollback_needed(rollback_needed_);
  return state;
}

void ShardMachine::Refuse(StreamId stream, v1::RefusalReason reason, std::string detail,
                          v1::Refused about) {
  about.set_reason(reason);
  about.set_detail(std::move(detail));
  about.set_holder_address(holder_address_);
  v1::ShardToCoordinator reply;
  *reply.mutable_refused() = std::move(about);
  Send(stream, std::move(reply));
}

void ShardMachine::Send(StreamId stream, v1::ShardToCoordinator message) {
  message.set_shard(shard_);
  *message.mutable_promised() = promised_;
  actions_.push_back(SendToCoordinator{stream, std::move(message)});
}

uint64_t ShardMachine::Append(journal::Record record) {
  const uint64_t token = next_token_++;
  actions_.push_back(AppendJournal{token, std::move(record)});
  return token;
}

}  // namespace kaon::shard
