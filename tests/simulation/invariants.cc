#include "tests/simulation/invariants.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ballot.h"

namespace kaon::simulation {

Invariants::Invariants(MachineOf machine_of, int num_shards)
    : machine_of_(std::move(machine_of)), seen_(num_shards) {}

void Invariants::Violated(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void Invariants::OnPulled(uint64_t step, uint32_t parameter_id, const std::vector<float>& weights) {
  const auto [found, fresh] = pulled_.emplace(std::pair(step, parameter_id), weights);
  // "a pulled or decided value never changes"
  if (!fresh && found->second != weights) {
    Violated(absl::StrCat("two versions ", step, " of parameter ", parameter_id, " were pulled"));
  }
}

void Invariants::OnCoordinatorSends(const v1::CoordinatorToShard& message) {
  if (message.has_decision()) {
    deciders_[message.decision().plan().position()].insert(message.ballot().SerializeAsString());
    // "decisions use only answers of their own ballot": so every shard has promised it.
    for (int i = 0; i < static_cast<int>(seen_.size()); ++i) {
      if (proto::Compare(machine_of_(i).promised(), message.ballot()) < 0) {
        Violated(absl::StrCat("ballot ", proto::ToString(message.ballot()), " decided position ",
                              message.decision().plan().position(), " while shard ", i,
                              " had promised only ", proto::ToString(machine_of_(i).promised())));
      }
    }
    return OnRecord(message.decision());
  }
  if (!message.has_plan()) return;
  const v1::StepPlan& plan = message.plan();
  // Rule 3: "Having decided t it never opens a round for t."
  if (deciders_[plan.position()].count(message.ballot().SerializeAsString()) > 0) {
    Violated(absl::StrCat("ballot ", proto::ToString(plan.ballot()), " opened round ", plan.round(),
                          " at position ", plan.position(), " after it decided it"));
  }
  // One plan value per (position, ballot, round).
  const std::string key =
      absl::StrCat(plan.position(), "/", plan.ballot().SerializeAsString(), "/", plan.round());
  const std::string bytes = plan.SerializeAsString();
  const auto [found, fresh] = plans_.emplace(key, bytes);
  if (!fresh && found->second != bytes) {
    Violated(absl::StrCat("two plans at position ", plan.position(), " of ballot ",
                          proto::ToString(plan.ballot()), " round ", plan.round()));
  }
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
  // Rule 1: "After promising b a shard sends no answer, PREPARE included, to a lower ballot."
  if (message.has_prepared()) {
    v1::StepPlan plan;
    plan.ParseFromString(message.prepared().plan());
    if (proto::Compare(plan.ballot(), machine_of_(shard).promised()) != 0) {
      Violated(absl::StrCat("shard ", shard, " sent a PREPARE of ballot ",
                            proto::ToString(plan.ballot()), " after promising ",
                            proto::ToString(machine_of_(shard).promised())));
    }
  }
}

void Invariants::AfterShardEvent(int shard) {
  const shard::ShardMachine& machine = machine_of_(shard);
  Seen& seen = seen_[shard];
  // "promise and PREPARE (ballot, round) never fall"
  if (proto::Compare(machine.promised(), seen.promised) < 0) {
    Violated(absl::StrCat("shard ", shard, ": promise fell from ", proto::ToString(seen.promised),
                          " to ", proto::ToString(machine.promised())));
  }
  seen.promised = machine.promised();
  if (machine.applied_position() < seen.applied) {
    Violated(absl::StrCat("shard ", shard, ": applied position fell from ", seen.applied, " to ",
                          machine.applied_position()));
  }
  if (machine.applied_position() != seen.applied) seen.prepared.Clear();
  seen.applied = machine.applied_position();
  const v1::ShardState state = machine.state();
  if (state.has_prepared()) {
    v1::StepPlan plan;
    plan.ParseFromString(state.prepared().plan());
    if (proto::CompareRound(plan, seen.prepared) < 0) {
      Violated(absl::StrCat("shard ", shard, ": PREPARE fell to ballot ",
                            proto::ToString(plan.ballot()), " round ", plan.round()));
    }
    seen.prepared = plan;
  }
  if (state.has_applied_record()) OnRecord(state.applied_record());
}

void Invariants::OnRecord(const v1::StepRecord& record) {
  const uint64_t position = record.plan().position();
  const auto [found, fresh] = records_.emplace(position, record);
  if (!fresh) {
    // "one plan value per log position"; "records equal on all shards"; a decided value never
    // changes.
    if (found->second.SerializeAsString() != record.SerializeAsString()) {
      Violated(absl::StrCat("two outcomes of position ", position, ": ",
                            found->second.ShortDebugString(), " and ", record.ShortDebugString()));
    }
    return;
  }
  if (position > 1 && records_.count(position - 1) == 0) {
    Violated(absl::StrCat("position ", position, " was decided before ", position - 1));
  }
  // "config revision in the plan = applied revision"
  if (record.plan().config_revision() != config_revision_) {
    Violated(absl::StrCat("position ", position, " was planned at config revision ",
                          record.plan().config_revision(), ", applied is ", config_revision_));
  }
  if (!record.plan().has_step()) config_revision_ = position;
  CheckDurableEverywhere(record);
}

// "from DECISION(t) on every shard [...] is at t with that record or holds that PREPARE"
void Invariants::CheckDurableEverywhere(const v1::StepRecord& record) {
  const uint64_t position = record.plan().position();
  const std::string plan = record.plan().SerializeAsString();
  for (size_t i = 0; i < seen_.size(); ++i) {
    const v1::ShardState state = machine_of_(i).state();
    const bool applied = state.applied_position() >= position;
    const bool holds = state.has_prepared() && state.prepared().plan() == plan;
    if (!applied && !holds) {
      Violated(absl::StrCat("position ", position, " was decided while shard ", i, " at position ",
                            state.applied_position(), " does not hold its PREPARE"));
    }
  }
}

}  // namespace kaon::simulation
