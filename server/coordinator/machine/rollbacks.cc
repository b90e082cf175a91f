#include "server/coordinator/machine/rollbacks.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/settings.h"
#include "server/config/durability.h"

namespace kaon::coordinator {

namespace {

// Returns equal keys for equal points: a point is the same bytes on every shard.
std::string KeyOf(const v1::SnapshotPoint& point) { return point.SerializeAsString(); }

bool Has(const v1::ShardState& state, const std::string& key) {
  return std::any_of(state.snapshots().begin(), state.snapshots().end(),
                     [&key](const v1::SnapshotPoint& point) { return KeyOf(point) == key; });
}

const v1::SnapshotPoint* NewestCommon(const std::vector<v1::ShardState>& states) {
  const v1::SnapshotPoint* newest = nullptr;
  for (const v1::SnapshotPoint& point : states[0].snapshots()) {
    const std::string key = KeyOf(point);
    const bool common =
        std::all_of(states.begin(), states.end(),
                    [&key](const v1::ShardState& state) { return Has(state, key); });
    if (common && (newest == nullptr || point.position() > newest->position())) newest = &point;
  }
  return newest;
}

// Returns whether the shard has applied the first entry of its timeline and the snapshot of it is
// not durable yet. The shard has not voted for a later entry then.
bool IsFirstSnapshotMissing(const v1::ShardState& state) {
  const v1::StepPlan& plan = state.applied_record().plan();
  const bool loads = plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS;
  if (!TakesBack(plan) && !(loads && state.weights_loaded())) return false;
  return std::none_of(state.snapshots().begin(), state.snapshots().end(),
                      [&state](const v1::SnapshotPoint& point) {
                        return point.position() == state.applied_position();
                      });
}

std::string WhatThereIs(const std::vector<v1::ShardState>& states) {
  std::vector<std::string> shards;
  for (size_t i = 0; i < states.size(); ++i) {
    std::vector<uint64_t> steps;
    for (const v1::SnapshotPoint& point : states[i].snapshots()) steps.push_back(point.step());
    shards.push_back(absl::StrCat("shard ", i, " has ",
                                  steps.empty() ? "none" : "step " + absl::StrJoin(steps, ", ")));
  }
  return absl::StrJoin(shards, "; ");
}

std::string Restarted(const std::vector<v1::ShardState>& states) {
  std::vector<size_t> shards;
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].rollback_needed()) shards.push_back(i);
  }
  return absl::StrCat("shard ", absl::StrJoin(shards, ", "), " restarted");
}

std::string ReasonFor(const std::vector<v1::ShardState>& states, const v1::SnapshotPoint& target) {
  uint64_t step = target.step();
  bool changed = false;
  for (const v1::ShardState& state : states) {
    step = std::max(step, state.applied_step());
    changed |= state.config_revision() > target.position();
  }
  const uint64_t first = target.step() + 1;
  return absl::StrCat(Restarted(states), "; ",
                      step < first    ? "no step is lost"
                      : step == first ? absl::StrCat("step ", step, " is lost")
                                      : absl::StrCat("steps ", first, " .. ", step, " are lost"),
                      changed ? ", with the hyper-parameters changed since" : "",
                      ", the job goes on from step ", target.step());
}

// Keeps settings of the shard with the newest position that are no part of the state: those of the
// job itself, and tiers of groups.
void KeepSettings(const std::vector<v1::ShardState>& states, v1::RollbackBody& rollback) {
  const auto newest = std::max_element(states.begin(), states.end(),
                                       [](const v1::ShardState& a, const v1::ShardState& b) {
                                         return a.applied_position() < b.applied_position();
                                       });
  for (const v1::GroupSetting& setting : newest->registration().changed()) {
    if (job::StaysAtRollback(setting)) *rollback.add_kept_settings() = setting;
  }
}

}  // namespace

LogPoint HighestPoint(const std::vector<v1::ShardState>& states) {
  LogPoint highest;
  for (const v1::ShardState& state : states) {
    v1::StepPlan held;
    // The bytes are the shard's own serialization, and empty if it holds no vote.
    if (!held.ParseFromString(state.prepared().plan())) held.Clear();
    highest.position = std::max({highest.position, state.applied_position(), held.position()});
    highest.timeline = std::max({highest.timeline, state.timeline(), held.timeline()});
  }
  return highest;
}

bool TakesBack(const v1::StepPlan& plan) { return plan.has_restore() || plan.has_rollback(); }

bool ReplacesState(const v1::StepPlan& plan) { return TakesBack(plan) || plan.has_job_deletion(); }

RollbackChoice ChooseRollback(const std::vector<v1::ShardState>& states) {
  RollbackChoice choice;
  const v1::SnapshotPoint* target = NewestCommon(states);
  if (target == nullptr) {
    for (size_t i = 0; i < states.size(); ++i) {
      if (IsFirstSnapshotMissing(states[i])) choice.wait_for.push_back(static_cast<int>(i));
    }
    if (!choice.wait_for.empty()) return choice;
    choice.stop = absl::DataLossError(absl::StrCat(
        Restarted(states),
        ", and there is no step that every shard has a snapshot of: ", WhatThereIs(states)));
    return choice;
  }
  v1::StepPlan plan;
  const LogPoint highest = HighestPoint(states);
  plan.set_job(target->registration().definition().name());
  plan.set_position(highest.position + 1);
  plan.set_timeline(highest.timeline + 1);
  *plan.mutable_rollback()->mutable_target() = *target;
  plan.mutable_rollback()->set_reason(ReasonFor(states, *target));
  KeepSettings(states, *plan.mutable_rollback());
  choice.plan = std::move(plan);
  return choice;
}

void WaitForSnapshots(const std::vector<int>& wait_for, std::vector<ShardView>& shards) {
  for (const int shard : wait_for) {
    shards[shard].state.reset();
    shards[shard].obstacle = "the first snapshot of its timeline is not on its disk yet";
  }
}

bool NeedRollbackAfter(const v1::StepPlan& newest, std::vector<ShardView>& shards) {
  bool need = false;
  for (ShardView& view : shards) {
    if (!view.state || !view.state->rollback_needed()) continue;
    const bool helped = ReplacesState(newest) && view.state->applied_position() < newest.position();
    if (helped) view.state->set_rollback_needed(false);
    need |= !helped;
  }
  return need;
}

absl::Status CheckSameDurability(const std::vector<v1::ShardState>& states) {
  const auto text = [](const v1::ShardState& state) {
    return config::DurabilityText(state.durability(), state.interval_steps());
  };
  for (size_t i = 1; i < states.size(); ++i) {
    if (text(states[i]) == text(states[0])) continue;
    return absl::FailedPreconditionError(absl::StrCat("shard 0 has durability ", text(states[0]),
                                                      ", shard ", i, " has ", text(states[i]),
                                                      "; all shards of a job must have the same"));
  }
  return absl::OkStatus();
}

}  // namespace kaon::coordinator
