// The machine's side towards the shards; its side towards callers is in step_machine_calls.cc.
#include "server/coordinator/machine/step_machine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/decide.h"
#include "proto/ballot.h"
#include "proto/decide_version.h"
#include "server/config/loss_remedy.h"
#include "server/coordinator/machine/entry_name.h"
#include "server/coordinator/machine/recovery.h"
#include "server/coordinator/machine/rollbacks.h"
#include "server/mutation/mutation.h"

namespace kaon::coordinator {

namespace {

// Returns false for a late refusal of an older round or ballot.
bool IsAbout(const v1::Refused& refused, const v1::StepPlan& plan) {
  return refused.position() == plan.position() && refused.round() == plan.round() &&
         proto::Compare(refused.ballot(), plan.ballot()) == 0;
}

}  // namespace

StepMachine::StepMachine(StepMachineOptions options)
    : options_(std::move(options)),
      limits_(LimitsOf(options_)),
      election_(ElectionOptionsOf(options_)),
      shards_(options_.shard_addresses.size()),
      watch_(2 * options_.heartbeat),
      requests_{{}, Restores(limits_), {}, Drains(options_.seed)},
      checkpoints_(options_) {}

void StepMachine::Do(CoordinatorAction action) {
  std::visit(
      [this](auto& answer) {
        if constexpr (requires { answer.holder_address; }) {
          bool refused = true;
          if constexpr (requires { answer.response; }) refused = !answer.response.ok();
          if (refused && !IsHolder()) answer.holder_address = HolderHint();
        }
      },
      action);
  actions_.push_back(std::move(action));
}

void StepMachine::Do(Actions actions) {
  for (CoordinatorAction& action : actions) Do(std::move(action));
}

Actions StepMachine::TakeActions() { return std::exchange(actions_, {}); }

void StepMachine::Send(int shard, v1::CoordinatorToShard message,
                       Shared<v1::CoordinatorToShard> body) {
  if (!shards_[shard].connected) return;
  // A probe has no ballot: the shard must not refuse it for one that this coordinator once had.
  if (!message.has_probe()) *message.mutable_ballot() = ballot_;
  message.set_holder_address(options_.address);
  message.set_shard(shard);
  message.set_num_shards(static_cast<uint32_t>(shards_.size()));
  Do(SendToShard{shard, std::move(message), std::move(body)});
}

void StepMachine::SendPhaseMessage(int shard) {
  const ShardView& view = shards_[shard];
  v1::CoordinatorToShard message;
  if (phase_ == Phase::kStandby) {
    message.mutable_probe();
  } else if (!view.state) {
    message.mutable_promise();
  } else if (phase_ == Phase::kApplying && view.applied_position < job_.position) {
    return Send(shard, std::move(message), job_.record.ForShards());
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
    // The shard answers the plan once every worker has pushed, however long that takes, and must
    // hear its holder meanwhile.
    if (phase_ == Phase::kRound && !shards_[i].prepared) SendHeartbeat(i);
  }
  if (const absl::Status heard = CheckHeard(); !heard.ok()) {
    FailChanges(heard);
    Do(results_.Fail(heard));
  } else {
    // Steps that waited for a drain go on after it failed.
    MaybeOpenStepRound();
  }
  joins_.Tick(now);
  LoseWorkers(now);
  Do(checkpoints_.Tick(now));
  AskForParts();
  AskToDrain();
  ReadStepRecord();
  Do(WakeAt{now + options_.heartbeat});
}

void StepMachine::OnShardConnected(int shard) {
  shards_[shard].connected = true;
  requests_.drains.OnConnected(shard);
  // The shard may be another process, which is not bound by the answers of the first one. Late
  // copies of those look like new answers, so read all shards again under a higher ballot (rule 1).
  if (phase_ != Phase::kStandby && shards_[shard].state) {
    Stand();
  } else {
    SendPhaseMessage(shard);
  }
}

void StepMachine::OnShardDisconnected(int shard, const absl::Status& why) {
  shards_[shard].connected = false;
  shards_[shard].ended = why;
  Do(requests_.drains.OnDisconnected(shard, why, job_));
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
  // A shard that lost its state never votes again, whatever the ballot (rule 5).
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
      Do(checkpoints_.OnReport(shard, message.checkpoint(), requests_.restores.InUse(job_)));
      break;
    case v1::ShardToCoordinator::kDrain:
      // Else the snapshot is not of the newest entry.
      if (phase_ == Phase::kReady) Do(requests_.drains.OnReport(shard, message.drain()));
      AskToDrain();
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
  deadline_.Reset();
  round_ = 0;
  for (ShardView& view : shards_) {
    view.state.reset();
    view.ForgetEntry();
    view.applied_position = 0;
  }
  results_.StopReading();
  FailChanges(absl::UnavailableError("the shards are being read again"));
  for (int i = 0; i < shards_.size(); ++i) SendPhaseMessage(i);
}

// Rule 6: "a refused coordinator refuses Join and Begin".
void StepMachine::StepDown() {
  phase_ = Phase::kStandby;
  election_.Refused();
  membership_.Reset(0);
  FailChanges(CheckHolder());
  Do(results_.Fail(CheckHolder()));
}

void StepMachine::Stop(absl::Status reason) {
  stopped_ = config::WithRemedy(reason);
  phase_ = Phase::kReady;
  FailChanges(stopped_);
  Do(results_.Fail(stopped_));
}

void StepMachine::FailChanges(const absl::Status& status) {
  AnswerRegistrations(status);
  Do(requests_.changes.End(status, job_));
  Do(requests_.restores.End(status, job_));
  Do(requests_.deletions.End(status, job_));
  Do(checkpoints_.Abandon(status));
  Do(requests_.drains.End(status));
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
  for (const ShardView& view : shards_) {
    if (!view.state) return;
  }
  election_.Won();
  const std::vector<v1::ShardState> states = StatesOf(shards_);
  const Recovery recovery = Recover(states);
  const v1::ShardState& newest = states[recovery.newest];
  const bool rewound = newest.timeline() != job_.timeline;
  job_.Read(newest);
  // Attempts that this process allotted or confirmed stay valid when it reads the shards again. In
  // a newer timeline the workers must join again to be told.
  if (membership_.world_size() != job_.WorldSize() || rewound) {
    membership_.Reset(job_.WorldSize());
    // A step whose workers are forgotten would never be planned: they begin it again.
    Do(results_.Fail(absl::AbortedError("the shards were read again and say other than before")));
  }
  restore_above_ = recovery.restore_above;
  if (!recovery.stop.ok()) return Stop(recovery.stop);
  if (recovery.rollback || !recovery.wait_for.empty()) {
    // The rollback may take back the newest record.
    results_.Forget();
    if (recovery.rollback) return OpenRound(*recovery.rollback);
    phase_ = Phase::kReading;
    return WaitForSnapshots(recovery.wait_for, shards_);
  }
  phase_ = Phase::kApplying;
  results_.Find(job_);
  ReadStepRecord();
  Do(results_.AnnounceRecord(job_, membership_));
  if (recovery.must_decide && !Mutated(Mutation::kUnanimousVoteReopened)) {
    std::vector<v1::Prepared> prepared;
    for (const v1::ShardState& state : states) prepared.push_back(state.prepared());
    return TakeDecision(*recovery.must_decide, prepared);
  }
  membership_.ForgetBegunExcept(job_.NextStep());
  for (int shard : recovery.behind) SendPhaseMessage(shard);
  BecomeReadyWhenAllApplied();
}

void StepMachine::ReadStepRecord() {
  const uint64_t wanted = results_.wanted_position();
  if (wanted == 0 || !IsHolder()) return;
  // Decided records are the same on every shard. A shard that does not answer is asked again.
  for (int i = 0; i < shards_.size(); ++i) {
    const ShardView& view = shards_[i];
    if (!view.connected || !view.state || view.state->applied_position() < wanted) continue;
    return Do(ReadRecord{i, wanted});
  }
}

void StepMachine::OnRecordRead(uint64_t position, const absl::StatusOr<v1::StepRecord>& record) {
  // The next heartbeat asks again after an error.
  if (position != results_.wanted_position() || !IsHolder() || !record.ok()) return;
  Do(results_.OnRead(*record));
  ReadStepRecord();
  Do(results_.AnnounceRecord(job_, membership_));
}

void StepMachine::OnRefused(int shard, const v1::Refused& refused) {
  const std::string problem = absl::StrCat("shard ", shard, ": ", refused.detail());
  Do(requests_.drains.OnRefused(shard, refused));
  if (refused.reason() == v1::REFUSAL_REASON_DATA_LOSS) {
    Stop(absl::DataLossError(problem));
  } else if (refused.decision()) {
    OnDecisionRefused(shard, refused);
  } else if (phase_ == Phase::kRound && IsAbout(refused, plan_)) {
    shards_[shard].obstacle = absl::StrCat("refuses: ", refused.detail());
    // A stale refusal answers a copy of an older message; the next heartbeat sends again what is
    // still wanted.
    if (refused.reason() == v1::REFUSAL_REASON_INVALID) OnPlanRefused(problem);
  }
}

void StepMachine::OnDecisionRefused(int shard, const v1::Refused& refused) {
  if (phase_ != Phase::kApplying || !IsAbout(refused, job_.record->plan())) return;
  shards_[shard].obstacle = absl::StrCat("refuses: ", refused.detail());
  const std::string what = absl::StrCat("decision of ", NameOfEntry(job_.record->plan()),
                                        " refused by shard ", shard, ": ", refused.detail());
  // The decision is final, and the shard would refuse it for ever. Rule 4: nothing withdrew the
  // vote it was decided on, so a shard that does not hold the vote has lost it.
  if (refused.reason() == v1::REFUSAL_REASON_INVALID) Stop(absl::InternalError(what));
  if (refused.reason() == v1::REFUSAL_REASON_STALE_PLAN) Stop(absl::DataLossError(what));
}

void StepMachine::OnPlanRefused(const std::string& problem) {
  // The shard's snapshot is damaged. Its next state says so.
  if (plan_.has_rollback()) return Stand();
  if (plan_.has_step()) {
    // BeginStep checks all that workers say of a step, so the shard would refuse every plan of it.
    return Stop(absl::InternalError(absl::StrCat(NameOfEntry(plan_), " refused by ", problem)));
  }
  // The entry is abandoned, not decided: another round follows at this position.
  phase_ = Phase::kReady;
  AnswerRegistrations(absl::ResourceExhaustedError(problem));
  if (plan_.has_group_change())
    Do(requests_.changes.End(absl::InvalidArgumentError(problem), job_));
  if (plan_.has_restore()) Do(requests_.restores.End(absl::FailedPreconditionError(problem), job_));
  if (plan_.has_job_deletion())
    Do(requests_.deletions.End(absl::FailedPreconditionError(problem), job_));
  OpenNext();
}

void StepMachine::OnPrepared(int shard, v1::Prepared prepared) {
  // A vote for an older round is no vote for this one.
  if (phase_ != Phase::kRound) return;
  if (prepared.plan() != plan_bytes_ && !Mutated(Mutation::kOtherVotesCount)) return;
  shards_[shard].prepared = std::move(prepared);
  // It lacks nothing.
  deadline_.OnAwaited(shard, {});
  DecideWhenAllPrepared();
}

void StepMachine::DecideWhenAllPrepared() {
  const bool all = std::all_of(shards_.begin(), shards_.end(),
                               [](const ShardView& view) { return view.prepared.has_value(); });
  if (!all && !Mutated(Mutation::kDecidedWithoutAll)) return;
  std::vector<v1::Prepared> prepared;
  for (ShardView& view : shards_) {
    // The decision follows: the votes are not needed any more.
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
  *record.mutable_decision() =
      job::Decide(job_.registration ? *job_.registration : plan.registration(), plan, prepared,
                  job_.record ? &*job_.record : nullptr);
  grad_norms_.Judge(plan, prepared);
  Adopt(std::move(record));
}

void StepMachine::Adopt(v1::StepRecord decided) {
  const uint64_t timeline = job_.timeline;
  // Rule 3: "Having decided t it never opens a round for t": rounds are opened at job_.position + 1
  // only.
  job_.Append(std::move(decided));
  const v1::StepPlan& plan = job_.record->plan();
  // Workers tell the rounds of a step apart by their number: a change of the job may have come
  // between two of them.
  round_ = plan.has_group_change() && plan.round() > 1 ? plan.round() : 0;
  for (ShardView& view : shards_) view.ForgetEntry();
  if (plan.has_registration()) membership_.Reset(job_.WorldSize());
  if (ReplacesState(plan)) BeginTimeline(TimelineIsOver(timeline, plan));
  for (const v1::Member& member : plan.step().members()) joins_.NoteTrained(member.rank());
  if (plan.has_group_change()) {
    membership_.Resize(job_.WorldSize());
    Do(results_.FailDismissed(membership_));
  }
  // Workers may have begun the next step already when this record is taken again after a new
  // reading. Initial weights that were refused are begun anew.
  if (plan.has_step() && plan.step().step() == job_.NextStep()) membership_.ForgetBegun();
  membership_.ForgetBegunExcept(job_.NextStep());
  if (plan.has_step()) results_.Decided(job_.record);
  phase_ = Phase::kApplying;
  Do(results_.AnnounceRecord(job_, membership_));
  for (int i = 0; i < shards_.size(); ++i) SendPhaseMessage(i);
}

void StepMachine::BeginTimeline(const absl::Status& over) {
  const v1::StepPlan& plan = job_.record->plan();
  if (plan.has_restore()) requests_.restores.Decided(plan.restore(), job_.timeline);
  stopped_ = absl::OkStatus();
  restore_above_.reset();
  // The steps that were begun are of the old timeline. Join tells workers of the new one.
  membership_.BeginTimeline(job_.WorldSize());
  results_.Forget();
  if (!job_.registration) AnswerRegistrations(over);
  Do(requests_.changes.End(over, job_));
  Do(checkpoints_.Abandon(over));
  Do(results_.Fail(over));
}

void StepMachine::OnApplied(int shard, uint64_t position) {
  shards_[shard].applied_position = std::max(shards_[shard].applied_position, position);
  if (phase_ == Phase::kApplying) BecomeReadyWhenAllApplied();
}

void StepMachine::BecomeReadyWhenAllApplied() {
  for (const ShardView& view : shards_) {
    if (view.applied_position < job_.position) return;
  }
  const v1::StepPlan& plan = job_.NewestPlan();
  if (NeedRollbackAfter(plan, shards_)) return Stand();
  phase_ = Phase::kReady;
  if (job_.registration) AnswerRegistrations(absl::OkStatus());
  if (plan.has_group_change()) {
    Do(requests_.changes.End(absl::OkStatus(), job_));
    ForgetSharesOutOfRange();
  }
  if (failure_.first == LogPoint{job_.position, job_.timeline}) return Stop(failure_.second);
  if (plan.has_restore()) Do(requests_.restores.End(absl::OkStatus(), job_));
  if (plan.has_job_deletion()) Do(requests_.deletions.End(absl::OkStatus(), job_));
  if (checkpoints_.IsDue(job_)) {
    checkpoints_.Start("", std::nullopt, job_);
    AskForParts();
  }
  OpenNext();
}

void StepMachine::OpenNext() {
  if (!OpenDeletion() && !OpenRestore() && !OpenGroupChange()) MaybeOpenStepRound();
  AskToDrain();
}

// Rule 3: "It may open a round for t only after reading all shards so, none at t, and not all
// prepared alike". Both phases it opens rounds from mean just that: kReady, every shard at
// job_.position; kRound, a PREPARE still missing.
void StepMachine::MaybeOpenStepRound() {
  const uint64_t step = job_.NextStep();
  if (!stopped_.ok() || !job_.registration || job_.registration->definition().paused()) return;
  if (phase_ != Phase::kReady && !OpenPlan().has_step()) return;
  if (phase_ == Phase::kReady && requests_.drains.shard()) return;
  if (!membership_.AllBegun(step)) return;
  // A worker that is back after it was lost takes part in the next round, but needs no new one.
  if (phase_ == Phase::kRound &&
      (membership_.AreMembers(plan_.step().members(), step) || Mutated(Mutation::kStaleMembers))) {
    return;
  }
  const Membership::Agreed agreed = membership_.AgreeOnMultipliers(step);
  // The step waits for the ranks that differ as for any absent worker.
  if (!agreed.refused.empty()) return Do(results_.RefuseMultipliers(agreed, step));
  OpenRound(job_.PlanStep(membership_.MembersOf(step), agreed.multipliers));
}

void StepMachine::OpenRound(v1::StepPlan plan) {
  if (!TakesBack(plan)) plan.set_timeline(job_.timeline);
  if (plan.position() == 0) plan.set_position(job_.position + 1);
  *plan.mutable_ballot() = ballot_;
  plan.set_round(++round_);
  plan.set_decide_version(proto::kDecideVersion);
  plan.set_config_revision(job_.config_revision);
  plan_ = std::move(plan);
  deadline_.OnStep(job_.timeline, job_.NextStep());
  plan_.has_group_change() ? deadline_.Reset() : deadline_.OnRound();
  plan_bytes_ = plan_.SerializeAsString();
  v1::CoordinatorToShard message;
  *message.mutable_plan() = plan_;
  if (plan_.has_step()) message.set_trace_id(membership_.TraceOf(plan_.step().step()));
  plan_message_ = Share(std::move(message));
  for (ShardView& view : shards_) view.ForgetEntry();
  phase_ = Phase::kRound;
  for (int i = 0; i < shards_.size(); ++i) SendPhaseMessage(i);
  Do(results_.AnnouncePlan(plan_));
}

}  // namespace kaon::coordinator
