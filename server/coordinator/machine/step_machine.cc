// The shards' side of the machine; the workers' side is in step_machine_calls.cc.
#include "server/coordinator/machine/step_machine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/decide.h"
#include "job/schedule.h"
#include "job/settings.h"
#include "proto/ballot.h"
#include "proto/decide_version.h"
#include "server/coordinator/machine/entry_name.h"
#include "server/coordinator/machine/rollback_choice.h"
#include "server/mutation/mutation.h"

namespace kaon::coordinator {

namespace {

ElectionOptions ElectionOptionsOf(const StepMachineOptions& options) {
  ElectionOptions election;
  election.num_shards = static_cast<int>(options.shard_addresses.size());
  election.incarnation_high = options.incarnation_high;
  election.incarnation_low = options.incarnation_low;
  election.seed = options.seed;
  election.takeover = options.takeover;
  return election;
}

// Late refusals of older rounds and ballots are about other plans.
bool IsAbout(const v1::Refused& refused, const v1::StepPlan& plan) {
  return refused.position() == plan.position() && refused.round() == plan.round() &&
         proto::Compare(refused.ballot(), plan.ballot()) == 0;
}

}  // namespace

StepMachine::StepMachine(StepMachineOptions options)
    : options_(std::move(options)),
      random_(options_.seed),
      election_(ElectionOptionsOf(options_)),
      watch_(2 * options_.heartbeat),
      shards_(options_.shard_addresses.size()) {}

void StepMachine::Send(int shard, v1::CoordinatorToShard message,
                       Shared<v1::CoordinatorToShard> body) {
  if (!shards_[shard].connected) return;
  // A probe asks on behalf of nobody: it must not be refused for the ballot this coordinator once
  // had.
  if (!message.has_probe()) *message.mutable_ballot() = ballot_;
  message.set_holder_address(options_.address);
  message.set_shard(shard);
  message.set_num_shards(static_cast<uint32_t>(shards_.size()));
  actions_.push_back(SendToShard{shard, std::move(message), std::move(body)});
}

// What `shard` has not answered yet, or a sign of life.
void StepMachine::SendPhaseMessage(int shard) {
  const ShardView& view = shards_[shard];
  v1::CoordinatorToShard message;
  if (phase_ == Phase::kStandby) {
    message.mutable_probe();
  } else if (!view.state) {
    message.mutable_promise();
  } else if (phase_ == Phase::kApplying && view.applied_position < position_) {
    return Send(shard, std::move(message), record_.ForShards());
  } else if (phase_ == Phase::kRound && !view.prepared) {
    return Send(shard, std::move(message), plan_message_);
  } else {
    return SendHeartbeat(shard);
  }
  Send(shard, std::move(message));
}

// Rule 7: "the holder heartbeats every shard".
void StepMachine::SendHeartbeat(int shard) {
  if (Mutated(Mutation::kNoHeartbeats)) return;
  v1::CoordinatorToShard message;
  message.mutable_heartbeat();
  Send(shard, std::move(message));
}

void StepMachine::Tick(absl::Time now) {
  for (int i = 0; i < shards_.size(); ++i) {
    shards_[i].silence = now - shards_[i].heard;
    SendPhaseMessage(i);
    // A plan is answered only when every worker has pushed, however long that takes: the shard must
    // be heard meanwhile.
    if (phase_ == Phase::kRound && !shards_[i].prepared) SendHeartbeat(i);
  }
  if (const absl::Status heard = CheckHeard(); !heard.ok()) {
    FailChanges(heard);
    FailAwaits(heard);
  }
  LoseWorkers(now);
  TickCheckpoint(now);
  ReadStepRecord();
  actions_.push_back(WakeAt{now + options_.heartbeat});
}

void StepMachine::OnShardConnected(int shard) {
  shards_[shard].connected = true;
  // A shard that comes back may be another process. What it said under this ballot counts for
  // nothing then, and late copies of it cannot be told from new answers; so read all shards again
  // under a higher ballot (rule 1).
  if (phase_ != Phase::kStandby && shards_[shard].state) {
    Stand();
  } else {
    SendPhaseMessage(shard);
  }
}

void StepMachine::OnShardDisconnected(int shard, const absl::Status& why) {
  shards_[shard].connected = false;
  shards_[shard].ended = why;
}

void StepMachine::OnShardMessage(int shard, v1::ShardToCoordinator message, absl::Time now) {
  election_.Observe(shard, message, now);
  shards_[shard].heard = now;
  shards_[shard].silence = absl::ZeroDuration();
  if (message.has_probed()) {
    if (phase_ == Phase::kStandby && election_.HolderIsSilent(shard, message.probed(), now)) {
      Stand();
    }
    return;
  }
  if (phase_ == Phase::kStandby) return;
  const int by_ballot = proto::Compare(message.promised(), ballot_);
  if (by_ballot > 0) {
    StepDown();
    return;
  }
  // Lost state is a fact about the shard, under whatever ballot: it never votes again (rule 5).
  const bool lost = message.has_state() && !message.state().data_loss().empty();
  // Rule 1: "only answers carrying its own ballot, sent after that shard's promise was durable,
  // count".
  if (by_ballot < 0 && !lost && !Mutated(Mutation::kAnswersOfOtherBallotsCount)) return;
  switch (message.body_case()) {
    case v1::ShardToCoordinator::kState:
      OnState(shard, message.state());
      break;
    case v1::ShardToCoordinator::kRefused:
      OnRefused(shard, message.refused());
      break;
    case v1::ShardToCoordinator::kPrepared:
      OnPrepared(shard, std::move(*message.mutable_prepared()));
      break;
    case v1::ShardToCoordinator::kApplied:
      OnApplied(shard, message.applied().position());
      break;
    case v1::ShardToCoordinator::kCheckpoint:
      OnCheckpointReport(shard, message.checkpoint());
      break;
    default:
      break;
  }
}

// Rule 1: "A coordinator first takes a higher ballot, then reads".
void StepMachine::Stand() {
  ballot_ = election_.TakeBallot();
  phase_ = Phase::kReading;
  stopped_ = absl::OkStatus();
  round_ = 0;
  for (ShardView& view : shards_) {
    view.state.reset();
    view.ForgetEntry();
    view.applied_position = 0;
  }
  wanted_position_ = 0;
  FailChanges(absl::UnavailableError("the shards are being read again"));
  for (int i = 0; i < shards_.size(); ++i) SendPhaseMessage(i);
}

// Rule 6: "a refused coordinator refuses Join and Begin".
void StepMachine::StepDown() {
  phase_ = Phase::kStandby;
  election_.Refused();
  membership_.Reset(0);
  FailChanges(CheckHolder());
  FailAwaits(CheckHolder());
}

void StepMachine::OnState(int shard, const v1::ShardState& state) {
  ShardView& view = shards_[shard];
  if (phase_ == Phase::kReading) {
    if (view.state) return;
    view.state = state;
    view.applied_position = state.applied_position();
    RecoverWhenAllRead();
  } else if (!state.data_loss().empty()) {
    Stop(absl::DataLossError(absl::StrCat("shard ", shard, ": ", state.data_loss())));
  }
}

void StepMachine::RecoverWhenAllRead() {
  std::vector<v1::ShardState> states;
  for (const ShardView& view : shards_) {
    if (!view.state) return;
    states.push_back(*view.state);
  }
  election_.Won();
  const Recovery recovery = Recover(states);
  const v1::ShardState& newest = states[recovery.newest];
  position_ = newest.applied_position();
  record_.reset();
  if (newest.has_applied_record()) record_ = DecidedRecord(newest.applied_record());
  registration_.reset();
  if (newest.has_registration()) registration_ = newest.registration();
  const bool rewound = newest.timeline() != timeline_;
  timeline_ = std::max<uint64_t>(1, newest.timeline());
  config_revision_ = newest.config_revision();
  applied_step_ = newest.applied_step();
  weights_loaded_ = newest.weights_loaded();
  const uint32_t world_size = registration_ ? registration_->definition().world_size() : 0;
  // Attempts that this process allotted or confirmed stay good when it reads the shards again.
  // Those of an older timeline must join again to be told.
  if (membership_.world_size() != world_size || rewound) {
    membership_.Reset(world_size);
    // A step whose workers are forgotten would never be planned: they begin it again.
    FailAwaits(absl::AbortedError("the shards were read again and say other than before"));
  }
  if (!recovery.stop.ok()) return Stop(recovery.stop);
  if (recovery.rollback || !recovery.wait_for.empty()) return BeginRollback(recovery);
  phase_ = Phase::kApplying;
  FindStepRecord();
  AnnounceRecord();
  if (recovery.must_decide && !Mutated(Mutation::kUnanimousVoteReopened)) {
    std::vector<v1::Prepared> prepared;
    for (const v1::ShardState& state : states) prepared.push_back(state.prepared());
    return TakeDecision(*recovery.must_decide, prepared);
  }
  membership_.ForgetBegunExcept(NextStep());
  for (int shard : recovery.behind) SendPhaseMessage(shard);
  BecomeReadyWhenAllApplied();
}

void StepMachine::Stop(absl::Status reason) {
  stopped_ = std::move(reason);
  phase_ = Phase::kReady;
  FailChanges(stopped_);
  FailAwaits(stopped_);
}

void StepMachine::OnRefused(int shard, const v1::Refused& refused) {
  const std::string problem = absl::StrCat("shard ", shard, ": ", refused.detail());
  if (refused.reason() == v1::REFUSAL_REASON_DATA_LOSS) {
    Stop(absl::DataLossError(problem));
    return;
  }
  if (refused.decision()) {
    if (phase_ != Phase::kApplying || !IsAbout(refused, record_->plan())) return;
    shards_[shard].obstacle = absl::StrCat("refuses: ", refused.detail());
    const std::string what =
        absl::StrCat("decision of ", NameOfEntry(record_->plan()), " refused by ", problem);
    // It is final and this shard cannot apply it: sent again, it would be refused for ever. Rule 4:
    // nothing withdrew the vote it was decided on, so a shard that does not hold it has lost it.
    if (refused.reason() == v1::REFUSAL_REASON_INVALID) Stop(absl::InternalError(what));
    if (refused.reason() == v1::REFUSAL_REASON_STALE_PLAN) Stop(absl::DataLossError(what));
    return;
  }
  if (phase_ == Phase::kRound && IsAbout(refused, plan_)) {
    shards_[shard].obstacle = absl::StrCat("refuses: ", refused.detail());
  }
  // Stale refusals answer copies of older messages; whatever is still wanted is sent again at the
  // next heartbeat.
  if (refused.reason() != v1::REFUSAL_REASON_INVALID) return;
  if (phase_ != Phase::kRound || !IsAbout(refused, plan_)) return;
  if (plan_.has_rollback()) return Stand();  // Its snapshot is damaged; it says so when it is read.
  if (plan_.has_step()) {
    // What workers say of a step is checked when they begin it, so every plan of it would be
    // refused.
    Stop(absl::InternalError(absl::StrCat(NameOfEntry(plan_), " refused by ", problem)));
    return;
  }
  // Given up, not decided: what comes next at this position is another round.
  phase_ = Phase::kReady;
  AnswerRegistrations(absl::ResourceExhaustedError(problem));
  if (plan_.has_group_change()) AnswerGroupChange(absl::InvalidArgumentError(problem));
  if (plan_.has_restore()) AnswerRestore(absl::FailedPreconditionError(problem));
  // Another one may have waited for it.
  if (!OpenRestore() && !OpenGroupChange()) MaybeOpenStepRound();
}

void StepMachine::OnPrepared(int shard, v1::Prepared prepared) {
  // A vote for an older round is no vote for this one.
  if (phase_ != Phase::kRound) return;
  if (prepared.plan() != plan_bytes_ && !Mutated(Mutation::kOtherVotesCount)) return;
  shards_[shard].prepared = std::move(prepared);
  DecideWhenAllPrepared();
}

void StepMachine::DecideWhenAllPrepared() {
  const bool all = std::all_of(shards_.begin(), shards_.end(),
                               [](const ShardView& view) { return view.prepared.has_value(); });
  if (!all && !Mutated(Mutation::kDecidedWithoutAll)) return;
  std::vector<v1::Prepared> prepared;
  for (ShardView& view : shards_) {
    // Decided, they are of no use any more.
    if (view.prepared) prepared.push_back(*std::move(view.prepared));
  }
  TakeDecision(plan_, prepared);
}

void StepMachine::TakeDecision(const v1::StepPlan& plan,
                               const std::vector<v1::Prepared>& prepared) {
  if (plan.decide_version() != proto::kDecideVersion) {
    Stop(absl::FailedPreconditionError(
        absl::StrCat(NameOfEntry(plan), " was planned with decide version ", plan.decide_version(),
                     ", this coordinator has ", proto::kDecideVersion)));
    return;
  }
  v1::StepRecord record;
  *record.mutable_plan() = plan;
  *record.mutable_decision() = job::Decide(registration_ ? *registration_ : plan.registration(),
                                           plan, prepared, record_ ? &*record_ : nullptr);
  grad_norms_.Judge(plan, prepared);
  Adopt(std::move(record));
}

void StepMachine::Adopt(v1::StepRecord record) {
  const v1::StepPlan& plan = record.plan();
  // Rule 3: "Having decided t it never opens a round for t": rounds are opened at position_ + 1
  // only.
  position_ = plan.position();
  // Workers tell the rounds of a step apart by their number: a change of the job may have come
  // between two of them.
  round_ = plan.has_group_change() && plan.round() > 1 ? plan.round() : 0;
  for (ShardView& view : shards_) view.ForgetEntry();
  if (plan.has_registration()) {
    registration_ = plan.registration();
    timeline_ = plan.timeline();
    config_revision_ = plan.position();
    membership_.Reset(registration_->definition().world_size());
  } else if (TakesBack(plan)) {
    AdoptNewTimeline(plan);
  } else if (plan.has_group_change()) {
    config_revision_ = plan.position();
    job::ApplyGroupChange(plan.group_change(), *registration_);
    DismissWorkers();
  } else if (plan.step().kind() == v1::STEP_KIND_TRAIN) {
    applied_step_ = plan.step().step();
  } else {
    weights_loaded_ = record.decision().outcome() == v1::OUTCOME_APPLY;
  }
  // Workers may have begun the next step already when this record is taken again after a new
  // reading. Initial weights that were refused are begun anew.
  if (plan.has_step() && plan.step().step() == NextStep()) membership_.ForgetBegun();
  membership_.ForgetBegunExcept(NextStep());
  record_ = DecidedRecord(std::move(record));
  if (record_->plan().has_step()) {
    step_record_ = record_;
    wanted_position_ = 0;
  }
  phase_ = Phase::kApplying;
  AnnounceRecord();
  for (int i = 0; i < shards_.size(); ++i) SendPhaseMessage(i);
}

void StepMachine::OnApplied(int shard, uint64_t position) {
  shards_[shard].applied_position = std::max(shards_[shard].applied_position, position);
  if (phase_ == Phase::kApplying) BecomeReadyWhenAllApplied();
}

void StepMachine::BecomeReadyWhenAllApplied() {
  for (const ShardView& view : shards_) {
    if (view.applied_position < position_) return;
  }
  if (ReadAgainIfForgotten()) return;
  phase_ = Phase::kReady;
  if (registration_) AnswerRegistrations(absl::OkStatus());
  if (record_ && record_->plan().has_group_change()) {
    AnswerGroupChange(absl::OkStatus());
    ForgetSharesOutOfRange();
  }
  if (failure_.first == timeline_) return Stop(failure_.second);
  if (record_ && record_->plan().has_restore()) AnswerRestore(absl::OkStatus());
  MaybeTakeCheckpoint();
  // Between two steps, and before the next is planned.
  if (!OpenRestore() && !OpenGroupChange()) MaybeOpenStepRound();
}

// Rule 3: "It may open a round for t only after reading all shards so, none at t, and not all
// prepared alike". Both phases it opens rounds from mean just that: kReady, every shard at
// position_; kRound, a PREPARE still missing.
void StepMachine::MaybeOpenStepRound() {
  if (!stopped_.ok() || !registration_) return;
  if (phase_ != Phase::kReady && (phase_ != Phase::kRound || !plan_.has_step())) return;
  if (!membership_.AllBegun(NextStep())) return;
  if (phase_ == Phase::kRound) {
    // Who is back after it was lost takes part in the next round, but needs none.
    const std::vector<v1::Member> members = membership_.MembersOf(NextStep());
    const auto& planned = plan_.step().members();
    const bool unchanged =
        std::all_of(planned.begin(), planned.end(), [&members](const v1::Member& member) {
          return std::any_of(members.begin(), members.end(), [&member](const v1::Member& now) {
            return now.rank() == member.rank() &&
                   proto::Compare(now.attempt(), member.attempt()) == 0;
          });
        });
    if (unchanged || Mutated(Mutation::kStaleMembers)) return;
  }
  const Membership::Agreed agreed = membership_.AgreeOnMultiplier(NextStep());
  // The step waits for those that differ as for any worker that is not there.
  if (!agreed.refused.empty()) return RefuseMultipliers(agreed);
  OpenStepRound(agreed.multiplier);
}

void StepMachine::OpenStepRound(double multiplier) {
  const v1::JobDefinition& definition = registration_->definition();
  v1::StepPlan plan;
  v1::StepBody& step = *plan.mutable_step();
  step.set_step(NextStep());
  for (v1::Member& member : membership_.MembersOf(NextStep())) {
    *step.add_members() = std::move(member);
  }
  if (weights_loaded_) {
    step.set_kind(v1::STEP_KIND_TRAIN);
    // Rule 8: "The loss scale of t comes from StepRecord(t-1) only".
    step.set_loss_scale(record_->decision().next_loss_scale());
    job::AddRates(definition, record_->decision().applied_updates(), multiplier, step);
  } else {
    step.set_kind(v1::STEP_KIND_LOAD_WEIGHTS);
    step.set_loss_scale(1);
  }
  plan.set_job(definition.name());
  OpenRound(std::move(plan));
}

void StepMachine::OpenRound(v1::StepPlan plan) {
  if (!TakesBack(plan)) plan.set_timeline(timeline_);
  if (!plan.has_rollback()) plan.set_position(position_ + 1);
  *plan.mutable_ballot() = ballot_;
  plan.set_round(++round_);
  plan.set_decide_version(proto::kDecideVersion);
  plan.set_config_revision(config_revision_);
  plan_ = std::move(plan);
  plan_bytes_ = plan_.SerializeAsString();
  v1::CoordinatorToShard message;
  *message.mutable_plan() = plan_;
  plan_message_ = Share(std::move(message));
  for (ShardView& view : shards_) view.ForgetEntry();
  phase_ = Phase::kRound;
  for (int i = 0; i < shards_.size(); ++i) SendPhaseMessage(i);
  for (const auto& [call, waiter] : waiters_) AnnouncePlan(call, waiter);
}

}  // namespace kaon::coordinator
