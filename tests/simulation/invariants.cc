#include "tests/simulation/invariants.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "proto/ballot.h"
#include "server/journal/history.h"

namespace kaon::simulation {

namespace {

bool TakesBack(const v1::StepPlan& plan) { return plan.has_restore() || plan.has_rollback(); }

// A registration after a deletion begins a timeline, too.
bool BeginsTimeline(const v1::StepPlan& plan) {
  return TakesBack(plan) || (plan.has_registration() && plan.position() > 1);
}

// A shard shows records without their registrations.
bool IsShownAs(const v1::StepRecord& decided, const v1::StepRecord& shown) {
  const v1::StepPlan& plan = decided.plan();
  const bool left_out = plan.has_registration() || TakesBack(plan);
  return shown.decision().SerializeAsString() == decided.decision().SerializeAsString() &&
         (left_out || shown.plan().SerializeAsString() == plan.SerializeAsString());
}

}  // namespace

Invariants::Invariants(Cluster cluster)
    : cluster_(std::move(cluster)),
      seen_(cluster_.num_shards),
      answers_(cluster_.num_shards),
      model_(cluster_.job) {}

void Invariants::Violated(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void Invariants::Note(const std::string& wrong) {
  if (!wrong.empty()) Violated(wrong);
}

void Invariants::OnCoordinatorSends(int coordinator, const v1::CoordinatorToShard& message) {
  if (message.has_decision()) {
    const v1::StepPlan& plan = message.decision().plan();
    deciders_[plan.position()].insert(message.ballot().SerializeAsString());
    Note(answers_.CheckDecision(coordinator, message.ballot(), plan));
    return OnRecord(message.decision());
  }
  if (!message.has_plan()) return;
  Note(answers_.CheckPlan(coordinator, message.ballot(), message.plan()));
  OnPlan(message.plan(), message.ballot().SerializeAsString());
}

void Invariants::OnPlan(const v1::StepPlan& plan, const std::string& ballot) {
  // "no round opened after that coordinator decided"; rule 3: "Having decided t it never opens a
  // round for t."
  if (deciders_[plan.position()].count(ballot) > 0) {
    Violated(absl::StrCat("ballot ", proto::ToString(plan.ballot()), " opened round ", plan.round(),
                          " at position ", plan.position(), " after it decided it"));
  }
  // "one plan value per log position"; rule 2: "*Alike* = byte-equal StepPlan, and the StepPlan
  // contains job, timeline, log position, ballot, round and decide() version."
  const std::string key = absl::StrCat(plan.position(), "/", ballot, "/", plan.round());
  const auto known = plans_.find(key);
  std::string bytes = plan.SerializeAsString();
  if (known != plans_.end()) {
    if (known->second != bytes) {
      Violated(absl::StrCat("two plans at position ", plan.position(), " of ballot ",
                            proto::ToString(plan.ballot()), " round ", plan.round()));
    }
    return;
  }
  plans_.emplace(key, std::move(bytes));
  if (plan.timeline() > newest_planned_ + 1) {
    Violated(absl::StrCat("timeline ", plan.timeline(), " planned, the newest before is ",
                          newest_planned_));
  }
  newest_planned_ = std::max(newest_planned_, plan.timeline());
  // "one process nonce each"; rule 6: "Join carries a process nonce, echoed".
  for (const v1::Member& member : plan.step().members()) {
    const auto [nonce, first] =
        nonces_.emplace(absl::StrCat(member.rank(), "/", member.attempt().SerializeAsString()),
                        member.process_nonce());
    if (!first && nonce->second != member.process_nonce()) {
      Violated(absl::StrCat("attempt ", proto::ToString(member.attempt()), " of rank ",
                            member.rank(), " names two processes"));
    }
  }
}

void Invariants::OnShardSends(int shard, const v1::ShardToCoordinator& message) {
  Seen& seen = seen_[shard];
  if (message.has_state()) seen.answered_promise = message.promised();
  if (!message.has_prepared()) return;
  // Rule 1: "After promising b a shard sends no answer, PREPARE included, to a lower ballot."
  v1::StepPlan plan;
  plan.ParseFromString(message.prepared().plan());
  const shard::ShardMachine& machine = *cluster_.machine_of(shard);
  const v1::Ballot& promised = machine.promised();
  if (proto::Compare(plan.ballot(), promised) != 0) {
    Violated(absl::StrCat("shard ", shard, " sent a PREPARE of ballot ",
                          proto::ToString(plan.ballot()), " after promising ",
                          proto::ToString(promised)));
  }
  if (machine.IsVolatile(plan)) return;
  const bool higher =
      plan.position() > seen.answered.position || proto::CompareRound(plan, seen.answered.plan) > 0;
  // Checks rule 4. A rollback of a later ballot may lie below a position that was voted for: no
  // process knows the accepted plans in between (ADR 0020).
  const bool later = proto::Compare(plan.ballot(), seen.answered.plan.ballot()) > 0;
  if (later || (plan.position() >= seen.answered.position && higher)) {
    seen.answered = {plan.position(), std::move(plan)};
  }
}

void Invariants::AfterShardEvent(int shard) {
  const shard::ShardMachine* machine = cluster_.machine_of(shard);
  if (machine == nullptr) return;
  Seen& seen = seen_[shard];
  // "promise and PREPARE (ballot, round) never fall"
  if (proto::Compare(machine->promised(), seen.promised) < 0) {
    Violated(absl::StrCat("shard ", shard, ": promise fell from ", proto::ToString(seen.promised),
                          " to ", proto::ToString(machine->promised())));
  }
  seen.promised = machine->promised();
  if (machine->applied_position() < seen.applied) {
    Violated(absl::StrCat("shard ", shard, ": applied position fell from ", seen.applied, " to ",
                          machine->applied_position()));
  }
  if (machine->applied_position() != seen.applied) {
    seen.applied = machine->applied_position();
    seen.highest_applied = std::max(seen.highest_applied, seen.applied);
    seen.prepared.Clear();
    seen.prepared_bytes.clear();
    OnRecord(*machine->applied_record());
  }
  CheckPrepared(shard, seen);
}

// 2.2: "a shard holds at most one PREPARE and accepts only position applied + 1 naming its applied
// revision". Its next PREPARE is the same one with a higher stamp, or that of another round.
void Invariants::CheckPrepared(int shard, Seen& seen) {
  const v1::Prepared* held = cluster_.machine_of(shard)->held();
  if (held == nullptr || held->plan() == seen.prepared_bytes) return;
  v1::StepPlan plan;
  plan.ParseFromString(held->plan());
  if (proto::CompareRound(plan, seen.prepared) < 0) {
    Violated(absl::StrCat("shard ", shard, ": PREPARE fell to ballot ",
                          proto::ToString(plan.ballot()), " round ", plan.round()));
  }
  seen.prepared = std::move(plan);
  seen.prepared_bytes = held->plan();
  if (!seen.prepared.has_step()) return;
  // A new stamp is about the same sums. After a restart the shard knows only the gradients of what
  // it read back.
  // known.
  const uint64_t generation = cluster_.machine_of(shard)->accepted_generation();
  if (generation > seen.checked_generation) {
    seen.checked_generation = generation;
    CheckAttempts(shard, seen.prepared);
  }
  CheckGradients(shard, seen.prepared, *held);
}

std::vector<uint32_t> Invariants::SummedOn(int shard, const v1::StepBody& step) const {
  std::vector<uint32_t> parameters;
  for (const v1::ParameterPlacement& home : placement_.parameters()) {
    const uint32_t id = home.parameter_id();
    const bool frozen = cluster_.job.parameters(static_cast<int>(id)).frozen();
    const bool loads = step.kind() == v1::STEP_KIND_LOAD_WEIGHTS;
    if (home.shard() == static_cast<uint32_t>(shard) && (loads || !frozen)) {
      parameters.push_back(id);
    }
  }
  return parameters;
}

// "attempts folded = the plan's, one process nonce each": checks the attempts of the pushed chunks.
void Invariants::CheckAttempts(int shard, const v1::StepPlan& plan) {
  for (const uint32_t id : SummedOn(shard, plan.step())) {
    const uint64_t num_elements = job::NumElements(cluster_.job.parameters(static_cast<int>(id)));
    for (const v1::Member& member : plan.step().members()) {
      const std::string wrong = taken_chunks_.Check(shard, member, id, num_elements);
      if (wrong.empty()) continue;
      return Violated(absl::StrCat("shard ", shard, ": PREPARE of position ", plan.position(),
                                   " round ", plan.round(), " has of ", wrong));
    }
  }
}

// Checks the same by the sums. Every process computes other gradients, so the bits of a sum
// identify the processes and their number.
void Invariants::CheckGradients(int shard, const v1::StepPlan& plan, const v1::Prepared& prepared) {
  uint64_t digest = 0;
  for (const uint32_t id : SummedOn(shard, plan.step())) {
    digest += model_.GradientDigest(plan.step(), id);
  }
  if (prepared.gradient_digest() == digest) return;
  Violated(absl::StrCat("shard ", shard, ": PREPARE of position ", plan.position(), " round ",
                        plan.round(), " of gradients with digest ", prepared.gradient_digest(),
                        ", those of the plan's attempts have ", digest));
}

// "promise and PREPARE (ballot, round) never fall on disk"; rule 5: "Promise and timeline are
// durable in every mode but `none`". Everything that the shard answered must be there again; the
// rest may be gone.
void Invariants::AfterShardStart(int shard) {
  const shard::ShardMachine& machine = *cluster_.machine_of(shard);
  Seen& seen = seen_[shard];
  if (proto::Compare(machine.promised(), seen.answered_promise) < 0) {
    Violated(absl::StrCat("shard ", shard, ": started with promise ",
                          proto::ToString(machine.promised()), ", it had answered ",
                          proto::ToString(seen.answered_promise)));
  }
  CheckDecidedIsHeld(shard, machine);
  if (cluster_.history_of) CheckHistory(shard, machine.applied_position());
  seen.promised = machine.promised();
  seen.applied = machine.applied_position();
  seen.highest_applied = std::max(seen.highest_applied, seen.applied);
  seen.prepared.Clear();
  seen.prepared_bytes.clear();
  seen.checked_generation = machine.newest_generation();
  if (seen.applied > 0) OnRecord(*machine.applied_record());
  CheckPrepared(shard, seen);
  const Vote& answered = seen.answered;
  if (seen.applied < answered.position && (seen.prepared.position() < answered.position ||
                                           proto::CompareRound(seen.prepared, answered.plan) < 0)) {
    Violated(absl::StrCat("shard ", shard, ": started at position ", seen.applied, " with ",
                          seen.prepared_bytes.empty() ? "no" : "an older", " PREPARE of position ",
                          answered.position, ", it had answered ballot ",
                          proto::ToString(answered.plan.ballot()), " round ",
                          answered.plan.round()));
  }
}

// "from DECISION(t) on every shard [...] is at t with that record or holds that PREPARE"
void Invariants::CheckDecidedIsHeld(int shard, const shard::ShardMachine& machine) {
  const uint64_t timeline = std::max<uint64_t>(1, machine.timeline());
  // A rollback or restore is voted for at any position of a shard.
  const auto decided = timeline < timelines_.rbegin()->first
                           ? records_.lower_bound({timelines_.rbegin()->first, 0})
                           : records_.find({timeline, machine.applied_position() + 1});
  if (decided == records_.end() || machine.IsVolatile(decided->second.plan())) return;
  if (machine.held() != nullptr &&
      machine.held()->plan() == decided->second.plan().SerializeAsString()) {
    return;
  }
  Violated(absl::StrCat("shard ", shard, ": started at position ", machine.applied_position(),
                        " without the PREPARE of position ", decided->first.position,
                        " of timeline ", decided->first.timeline, ", which was decided"));
}

// "shards keep the last 1,000", whatever their journals have forgotten. In mode INTERVAL the
// records of steps are not written, and discarded ones are gone.
void Invariants::CheckHistory(int shard, uint64_t applied_position) {
  uint64_t next = applied_position - std::min<uint64_t>(applied_position, journal::kMaxHistory) + 1;
  for (const v1::StepRecord& record : cluster_.history_of(shard)) {
    const LogKey key = KeyOf(record.plan());
    const auto decided = records_.find(key);
    const bool in_order = cluster_.interval_steps > 0 ? key.position >= next : key.position == next;
    if (!in_order || decided == records_.end() || !IsShownAs(decided->second, record)) {
      return Violated(absl::StrCat("shard ", shard, ": started with the record of position ",
                                   key.position, " of timeline ", key.timeline, ", expecting ",
                                   next, ": ", record.ShortDebugString()));
    }
    next = key.position + 1;
  }
  if (next == applied_position + 1 || cluster_.interval_steps > 0) return;
  Violated(absl::StrCat("shard ", shard, ": started at position ", applied_position,
                        " with records up to position ", next - 1));
}

void Invariants::OnRecord(const v1::StepRecord& record) {
  const LogKey key = KeyOf(record.plan());
  std::string bytes = record.SerializeAsString();
  const auto [found, fresh] = record_bytes_.emplace(key, bytes);
  if (!fresh) {
    // "one plan value per log position"; "records equal on all shards"; "a pulled or decided value
    // never changes except across a timeline".
    if (found->second != bytes) {
      Violated(absl::StrCat("two outcomes of position ", key.position, " of timeline ",
                            key.timeline, ": ", records_[key].ShortDebugString(), " and ",
                            record.ShortDebugString()));
    }
    return;
  }
  records_[key] = record;
  BeginsTimeline(record.plan()) ? BeginTimeline(record) : CheckPlace(record);
  if (record.plan().has_registration()) placement_ = record.plan().registration().placement();
  CheckHeldEverywhere(record);
}

// 2.2: "Steps and control changes share ONE numbering and the same unanimous PREPARE".
void Invariants::CheckPlace(const v1::StepRecord& record) {
  const v1::StepPlan& plan = record.plan();
  const auto found = timelines_.find(plan.timeline());
  if (found == timelines_.end()) {
    return Violated(absl::StrCat("position ", plan.position(), " was decided in timeline ",
                                 plan.timeline(), ", which nothing began"));
  }
  // A coordinator that was frozen may be the last to learn that a timeline is over, but only if
  // votes are forgotten.
  if (std::next(found) != timelines_.end() && cluster_.interval_steps == 0) {
    Violated(absl::StrCat("position ", plan.position(), " was decided in timeline ",
                          plan.timeline(), ", which is over"));
  }
  Timeline& timeline = found->second;
  if (plan.position() != timeline.position + 1) {
    Violated(
        absl::StrCat("position ", plan.position(), " was decided before ", timeline.position + 1));
  }
  timeline.position = plan.position();
  // "config revision in the plan = applied revision"
  if (plan.config_revision() != timeline.config_revision) {
    Violated(absl::StrCat("position ", plan.position(), " was planned at config revision ",
                          plan.config_revision(), ", applied is ", timeline.config_revision));
  }
  if (!plan.has_step()) {
    timeline.config_revision = plan.position();
  } else {
    timeline.step = plan.step().step();
    CheckLost(found);
  }
}

void Invariants::BeginTimeline(const v1::StepRecord& record) {
  const v1::StepPlan& plan = record.plan();
  const auto& [number, before] = *timelines_.rbegin();
  if (plan.timeline() <= number) {
    return Violated(absl::StrCat("position ", plan.position(), " begins timeline ", plan.timeline(),
                                 ", there is ", number));
  }
  if (cluster_.interval_steps == 0 &&
      (plan.has_rollback() || plan.position() != before.position + 1 ||
       plan.config_revision() != before.config_revision)) {
    Violated(absl::StrCat("position ", plan.position(), " begins timeline ", plan.timeline(),
                          " at config revision ", plan.config_revision(), ", position ",
                          before.position, " with revision ", before.config_revision,
                          " was decided before"));
  }
  Timeline timeline;
  timeline.position = plan.position();
  timeline.config_revision = plan.position();
  timeline.step = plan.has_rollback() ? plan.rollback().target().step() : plan.restore().step();
  if (plan.has_rollback()) timeline.back_to = timeline.step;
  CheckLost(std::prev(timelines_.emplace(plan.timeline(), timeline).first));
}

// Mode INTERVAL: "at most K steps".
void Invariants::CheckLost(const std::map<uint64_t, Timeline>::iterator& timeline) {
  const auto next = std::next(timeline);
  if (next == timelines_.end() || !next->second.back_to.has_value()) return;
  const uint64_t step = timeline->second.step;
  if (step <= *next->second.back_to + cluster_.interval_steps) return;
  Violated(absl::StrCat("step ", step, " of timeline ", timeline->first, " was decided, timeline ",
                        next->first, " goes back to step ", *next->second.back_to,
                        ", which is more than ", cluster_.interval_steps, " before"));
}

bool Invariants::IsForgotten(const v1::StepPlan& plan) const {
  const bool loads = plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS;
  return cluster_.interval_steps > 0 && (plan.has_group_change() || (plan.has_step() && !loads));
}

// Returns true if a decision is lost because this shard has forgotten its vote, or replaced the
// vote by one for a rollback. The decider was the last to learn of that
// (shard_machine_rollback.cc).
bool Invariants::IsTakenBack(const shard::ShardMachine& machine, uint64_t timeline) {
  if (machine.timeline() > timeline || machine.state().rollback_needed()) return true;
  if (machine.held() == nullptr) return false;
  v1::StepPlan held;
  held.ParseFromString(machine.held()->plan());
  return held.has_rollback() && held.timeline() > timeline;
}

// "from DECISION(t) on every shard, on disk and in memory, is at t with that record or holds that
// PREPARE"
void Invariants::CheckHeldEverywhere(const v1::StepRecord& record) {
  const uint64_t position = record.plan().position();
  const std::string plan = record.plan().SerializeAsString();
  const bool forgotten = IsForgotten(record.plan());
  const bool read_disks = !forgotten && cluster_.disk_of != nullptr && cluster_.draw_check();
  for (size_t i = 0; i < seen_.size(); ++i) {
    const shard::ShardMachine* machine = cluster_.machine_of(static_cast<int>(i));
    const bool on_disk_only = machine == nullptr && !forgotten && cluster_.disk_of != nullptr;
    if (read_disks || on_disk_only) CheckDisk(static_cast<int>(i), position, plan);
    if (machine == nullptr) continue;
    const bool applied = machine->applied_position() >= position;
    const bool holds = machine->held() != nullptr && machine->held()->plan() == plan;
    if (applied || holds) continue;
    if (forgotten && IsTakenBack(*machine, record.plan().timeline())) continue;
    Violated(absl::StrCat("position ", position, " was decided while shard ", i, " at position ",
                          machine->applied_position(), " does not hold its PREPARE"));
  }
}

void Invariants::CheckDisk(int shard, uint64_t position, const std::string& plan) {
  const absl::StatusOr<DurableState> state = cluster_.disk_of(shard);
  if (!state.ok()) {
    return Violated(absl::StrCat("position ", position, " was decided while the disk of shard ",
                                 shard, " cannot be read: ", state.status().ToString()));
  }
  if (state->decided >= position || state->prepared_plan == plan) return;
  Violated(absl::StrCat("position ", position, " was decided while the disk of shard ", shard,
                        " is at position ", state->decided, " and does not hold its PREPARE"));
}

}  // namespace kaon::simulation
