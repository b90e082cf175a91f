#include "tests/simulation/invariants.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ballot.h"

namespace kaon::simulation {

Invariants::Invariants(Cluster cluster)
    : cluster_(std::move(cluster)), seen_(cluster_.num_shards) {}

void Invariants::Violated(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void Invariants::OnCoordinatorSends(const v1::CoordinatorToShard& message) {
  if (message.has_decision()) {
    deciders_[message.decision().plan().position()].insert(message.ballot().SerializeAsString());
    // "decisions use only answers of their own ballot": so every shard has promised it.
    for (size_t i = 0; i < seen_.size(); ++i) {
      if (proto::Compare(seen_[i].promised, message.ballot()) < 0) {
        Violated(absl::StrCat("ballot ", proto::ToString(message.ballot()), " decided position ",
                              message.decision().plan().position(), " while shard ", i,
                              " had promised only ", proto::ToString(seen_[i].promised)));
      }
    }
    return OnRecord(message.decision());
  }
  if (message.has_plan()) OnPlan(message.plan(), message.ballot().SerializeAsString());
}

void Invariants::OnPlan(const v1::StepPlan& plan, const std::string& ballot) {
  // Rule 3: "Having decided t it never opens a round for t."
  if (deciders_[plan.position()].count(ballot) > 0) {
    Violated(absl::StrCat("ballot ", proto::ToString(plan.ballot()), " opened round ", plan.round(),
                          " at position ", plan.position(), " after it decided it"));
  }
  // One plan value per (position, ballot, round).
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
  const v1::Ballot& promised = cluster_.machine_of(shard)->promised();
  if (proto::Compare(plan.ballot(), promised) != 0) {
    Violated(absl::StrCat("shard ", shard, " sent a PREPARE of ballot ",
                          proto::ToString(plan.ballot()), " after promising ",
                          proto::ToString(promised)));
  }
  const bool higher =
      plan.position() > seen.answered.position || proto::CompareRound(plan, seen.answered.plan) > 0;
  if (plan.position() >= seen.answered.position && higher) {
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
}

// "promise and PREPARE (ballot, round) never fall on disk": what was answered is there again, and
// no less; what was not answered may be gone.
void Invariants::AfterShardStart(int shard) {
  const shard::ShardMachine& machine = *cluster_.machine_of(shard);
  Seen& seen = seen_[shard];
  if (proto::Compare(machine.promised(), seen.answered_promise) < 0) {
    Violated(absl::StrCat("shard ", shard, ": started with promise ",
                          proto::ToString(machine.promised()), ", it had answered ",
                          proto::ToString(seen.answered_promise)));
  }
  // "from DECISION(t) on every shard [...] is at t with that record or holds that PREPARE"
  const auto decided = records_.find(machine.applied_position() + 1);
  if (decided != records_.end() &&
      (machine.held() == nullptr ||
       machine.held()->plan() != decided->second.plan().SerializeAsString())) {
    Violated(absl::StrCat("shard ", shard, ": started at position ", machine.applied_position(),
                          " without the PREPARE of the next one, which was decided"));
  }
  const Vote& answered = seen.answered;
  if (machine.applied_position() + 1 < answered.position) {
    Violated(absl::StrCat("shard ", shard, ": started at position ", machine.applied_position(),
                          ", it had answered the PREPARE of ", answered.position));
  }
  seen.promised = machine.promised();
  seen.applied = machine.applied_position();
  seen.highest_applied = std::max(seen.highest_applied, seen.applied);
  seen.prepared.Clear();
  seen.prepared_bytes.clear();
  if (seen.applied > 0) OnRecord(*machine.applied_record());
  CheckPrepared(shard, seen);
  if (machine.applied_position() + 1 == answered.position &&
      proto::CompareRound(seen.prepared, answered.plan) < 0) {
    Violated(absl::StrCat(
        "shard ", shard, ": started with ", seen.prepared_bytes.empty() ? "no" : "an older",
        " PREPARE of position ", answered.position, ", it had answered ballot ",
        proto::ToString(answered.plan.ballot()), " round ", answered.plan.round()));
  }
}

void Invariants::OnRecord(const v1::StepRecord& record) {
  const uint64_t position = record.plan().position();
  std::string bytes = record.SerializeAsString();
  const auto [found, fresh] = record_bytes_.emplace(position, bytes);
  if (!fresh) {
    // "one plan value per log position"; "records equal on all shards"; a decided value never
    // changes.
    if (found->second != bytes) {
      Violated(absl::StrCat("two outcomes of position ", position, ": ",
                            records_[position].ShortDebugString(), " and ",
                            record.ShortDebugString()));
    }
    return;
  }
  records_[position] = record;
  if (position > 1 && records_.count(position - 1) == 0) {
    Violated(absl::StrCat("position ", position, " was decided before ", position - 1));
  }
  // "config revision in the plan = applied revision"
  if (record.plan().config_revision() != config_revision_) {
    Violated(absl::StrCat("position ", position, " was planned at config revision ",
                          record.plan().config_revision(), ", applied is ", config_revision_));
  }
  if (!record.plan().has_step()) config_revision_ = position;
  if (record.plan().has_registration()) placement_ = record.plan().registration().placement();
  CheckHeldEverywhere(record);
}

// "from DECISION(t) on every shard, on disk and in memory, is at t with that record or holds that
// PREPARE"
void Invariants::CheckHeldEverywhere(const v1::StepRecord& record) {
  const uint64_t position = record.plan().position();
  const std::string plan = record.plan().SerializeAsString();
  const bool read_disks = cluster_.disk_of != nullptr && cluster_.draw_check();
  for (size_t i = 0; i < seen_.size(); ++i) {
    const shard::ShardMachine* machine = cluster_.machine_of(static_cast<int>(i));
    const bool on_disk_only = machine == nullptr && cluster_.disk_of != nullptr;
    if (read_disks || on_disk_only) CheckDisk(static_cast<int>(i), position, plan);
    if (machine == nullptr) continue;
    const bool applied = machine->applied_position() >= position;
    const bool holds = machine->held() != nullptr && machine->held()->plan() == plan;
    if (!applied && !holds) {
      Violated(absl::StrCat("position ", position, " was decided while shard ", i, " at position ",
                            machine->applied_position(), " does not hold its PREPARE"));
    }
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
