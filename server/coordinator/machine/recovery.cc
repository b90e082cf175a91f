#include "server/coordinator/machine/recovery.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/ballot.h"

namespace kaon::coordinator {

namespace {

// Returns the plan that the shard voted for and has not applied, if it holds one. The plan is at
// the applied position + 1, or at any higher position if it replaces the state.
std::optional<v1::StepPlan> HeldPlan(const v1::ShardState& state) {
  v1::StepPlan plan;
  if (!state.has_prepared() || !plan.ParseFromString(state.prepared().plan())) return std::nullopt;
  const bool is_next = ReplacesState(plan) ? plan.position() > state.applied_position()
                                           : plan.position() == state.applied_position() + 1;
  if (!is_next) return std::nullopt;
  return plan;
}

// 2.2, "Shard down": "the job waits (its partition exists nowhere else, except in `replica` mode,
// later). A shard that comes back without its durable state reports DATA_LOSS and the job stops; it
// never re-initialises silently."
absl::Status Lost(int shard, absl::string_view why) {
  return absl::DataLossError(absl::StrCat("shard ", shard, ": ", why));
}

// Votes are unanimous before a decision, and nothing withdraws a vote. So a shard that has not
// applied the newest record holds the PREPARE of exactly its plan, or has lost its vote (2.1 rule
// 5).
absl::Status CheckBehind(int shard, const v1::ShardState& state, const Recovery& recovery,
                         const v1::ShardState& newest) {
  const uint64_t position = newest.applied_position();
  const std::optional<v1::StepPlan> held = HeldPlan(state);
  if (held && proto::Alike(*held, newest.applied_record().plan())) return absl::OkStatus();
  if (state.applied_position() + 1 < position) {
    return Lost(shard,
                absl::StrCat("lost its state: it has applied position ", state.applied_position(),
                             ", shard ", recovery.newest, " has applied ", position));
  }
  return Lost(shard, absl::StrCat("lost its state: it does not hold the PREPARE of position ",
                                  position, ", which shard ", recovery.newest, " has applied"));
}

// Rule 3: "if all are alike it must decide".
std::optional<v1::StepPlan> AlikeAtAll(const std::vector<v1::ShardState>& states) {
  const std::optional<v1::StepPlan> first = HeldPlan(states[0]);
  for (const v1::ShardState& state : states) {
    if (!HeldPlan(state) || state.prepared().plan() != states[0].prepared().plan()) {
      return std::nullopt;
    }
  }
  return first;
}

// A shard that restarted has forgotten votes, so entries after its snapshot cannot be completed.
// But it remembers its vote for a plan that replaces the state. Such a plan comes first: if it was
// decided, every shard holds it. Section 2.2 says of PREPARE(rollback): "once any shard holds it,
// every later holder completes it". If all shards hold it, this decides it; else the holder plans a
// rollback of its own above it (ADR 0020, ADR 0028).
void RecoverForgotten(const std::vector<v1::ShardState>& states, Recovery& recovery) {
  const std::optional<v1::StepPlan> alike = AlikeAtAll(states);
  if (alike && ReplacesState(*alike)) {
    recovery.must_decide = alike;
    return;
  }
  const v1::ShardState& newest = states[recovery.newest];
  const v1::StepPlan& applied = newest.applied_record().plan();
  const bool loads = applied.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS;
  for (int i = 0; (ReplacesState(applied) || loads) && i < states.size(); ++i) {
    if (states[i].applied_position() == newest.applied_position()) continue;
    recovery.stop = CheckBehind(i, states[i], recovery, newest);
    if (!recovery.stop.ok()) return;
    recovery.behind.push_back(i);
  }
  // Once all shards have applied the record, those that it did not help still need a rollback.
  if (!recovery.behind.empty()) return;
  RollbackChoice choice = ChooseRollback(states);
  recovery.stop = std::move(choice.stop);
  recovery.wait_for = std::move(choice.wait_for);
  recovery.rollback = std::move(choice.plan);
}

Recovery RecoverJob(const std::vector<v1::ShardState>& states) {
  Recovery recovery;
  for (int i = 1; i < states.size(); ++i) {
    if (states[i].applied_position() > states[recovery.newest].applied_position()) {
      recovery.newest = i;
    }
  }
  const v1::ShardState& newest = states[recovery.newest];
  const std::string record_bytes = newest.applied_record().SerializeAsString();
  bool forgotten = false;
  for (int i = 0; i < states.size(); ++i) {
    if (!states[i].data_loss().empty()) {
      recovery.stop = Lost(i, states[i].data_loss());
      return recovery;
    }
    forgotten |= states[i].rollback_needed();
  }
  if (forgotten) {
    recovery.stop = CheckSameDurability(states);
    if (recovery.stop.ok()) RecoverForgotten(states, recovery);
    return recovery;
  }
  // The shards may have applied different entries before it, if one lost its state.
  const std::optional<v1::StepPlan> alike = AlikeAtAll(states);
  if (alike && TakesBack(*alike)) {
    recovery.must_decide = alike;
    return recovery;
  }
  for (int i = 0; i < states.size(); ++i) {
    if (states[i].applied_position() == newest.applied_position()) {
      if (states[i].applied_record().SerializeAsString() != record_bytes) {
        recovery.stop =
            Lost(i, absl::StrCat("holds another record of position ", newest.applied_position(),
                                 " than shard ", recovery.newest));
        return recovery;
      }
      continue;
    }
    recovery.stop = CheckBehind(i, states[i], recovery, newest);
    if (!recovery.stop.ok()) return recovery;
    recovery.behind.push_back(i);
  }
  const bool has_job = newest.has_registration() || newest.applied_position() == 0;
  if (!has_job && !newest.applied_record().plan().has_job_deletion()) {
    recovery.stop = Lost(recovery.newest, absl::StrCat("lost its registration, at position ",
                                                       newest.applied_position()));
    return recovery;
  }
  if (recovery.behind.empty()) recovery.must_decide = alike;
  return recovery;
}

}  // namespace

Recovery Recover(const std::vector<v1::ShardState>& states) {
  Recovery recovery = RecoverJob(states);
  const bool all_vote = std::all_of(states.begin(), states.end(), [](const v1::ShardState& state) {
    return state.data_loss().empty();
  });
  if (absl::IsDataLoss(recovery.stop) && all_vote) recovery.restore_above = HighestPoint(states);
  return recovery;
}

}  // namespace kaon::coordinator
