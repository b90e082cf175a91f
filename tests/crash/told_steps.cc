#include "tests/crash/told_steps.h"

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::crash {

namespace {

using simulation::Log;
using simulation::LogKey;
using simulation::Operation;

// Lives by timeline, step and rank.
using Begun = std::map<std::tuple<uint64_t, uint64_t, uint32_t>, std::set<uint64_t>>;

Begun LivesOf(const ClientHistory& history) {
  Begun begun;
  for (const Operation& operation : history.operations) {
    if (operation.kind != Operation::Kind::kStep) continue;
    begun[{operation.timeline, operation.step, operation.rank}].insert(
        LifeOfNonce(operation.process_nonce));
  }
  return begun;
}

// The lives whose losses have this mean, one for each of `ranks`; nothing if there are none such.
// `lives` are those of the first ranks.
std::optional<std::vector<uint64_t>> FindLives(const std::vector<uint32_t>& ranks,
                                               const std::vector<std::set<uint64_t>>& candidates,
                                               double loss, std::vector<uint64_t> lives) {
  const size_t next = lives.size();
  if (next == ranks.size()) {
    double sum = 0;
    double weight = 0;
    for (size_t i = 0; i < ranks.size(); ++i) {
      sum += TokenWeight(ranks[i], lives[i]) * LossOf(ranks[i], lives[i]);
      weight += TokenWeight(ranks[i], lives[i]);
    }
    // Bit by bit, as the coordinator has computed it.
    if (sum / weight == loss) return lives;
    return std::nullopt;
  }
  for (const uint64_t life : candidates[next]) {
    lives.push_back(life);
    if (const auto found = FindLives(ranks, candidates, loss, lives)) return found;
    lives.pop_back();
  }
  return std::nullopt;
}

v1::StepDecision DecisionOf(const kaon::StepRecord& told) {
  v1::StepDecision decision;
  decision.set_outcome(told.applied ? v1::OUTCOME_APPLY : v1::OUTCOME_SKIP);
  decision.set_reason(told.reason);
  for (const kaon::GroupNorm& one : told.norms) {
    v1::GroupNorm& norm = *decision.add_norms();
    norm.set_group(one.group);
    norm.set_exempt(one.exempt);
    norm.set_clip_factor(one.clip_factor);
    if (one.norm.has_value()) norm.set_norm(*one.norm);
  }
  if (told.loss.has_value()) decision.set_loss(*told.loss);
  decision.set_next_loss_scale(told.next_loss_scale);
  decision.set_applied_updates(told.applied_updates);
  decision.set_state_digest(told.state_digest);
  return decision;
}

absl::StatusOr<v1::StepRecord> RecordOf(const v1::JobDefinition& job, const LogKey& key,
                                        const kaon::StepRecord& told, const Begun& begun) {
  std::vector<std::set<uint64_t>> candidates;
  for (const uint32_t rank : told.ranks) {
    const auto lives = begun.find({key.timeline, told.step, rank});
    candidates.push_back(lives == begun.end() ? std::set<uint64_t>() : lives->second);
  }
  const auto lives = FindLives(told.ranks, candidates, told.loss.value_or(-1), {});
  if (!lives.has_value()) {
    return absl::DataLossError(absl::StrCat("step ", told.step, " of timeline ", key.timeline,
                                            " was told with gradients that nobody had begun"));
  }
  v1::StepRecord record;
  v1::StepPlan& plan = *record.mutable_plan();
  plan.set_job(job.name());
  plan.set_timeline(key.timeline);
  plan.set_position(key.position);
  plan.mutable_step()->set_step(told.step);
  plan.mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  plan.mutable_step()->set_loss_scale(1);
  for (size_t i = 0; i < told.ranks.size(); ++i) {
    v1::Member& member = *plan.mutable_step()->add_members();
    member.set_rank(told.ranks[i]);
    member.set_token_weight(TokenWeight(told.ranks[i], (*lives)[i]));
    member.set_process_nonce(NonceOf((*lives)[i], key.timeline));
    member.set_micro_batches(1);
  }
  // The tiny job has no schedule.
  for (const v1::ParameterGroup& group : job.groups()) {
    plan.mutable_step()->add_rates()->set_learning_rate(group.lr());
  }
  *record.mutable_decision() = DecisionOf(told);
  return record;
}

// Position less step, by timeline: the job has no entries but steps and rollbacks.
std::map<uint64_t, uint64_t> OffsetsOf(const Log& log) {
  std::map<uint64_t, uint64_t> offsets;
  for (const auto& [key, record] : log) {
    const v1::StepPlan& plan = record.plan();
    if (plan.has_rollback()) {
      offsets[key.timeline] = key.position - plan.rollback().target().step();
    } else if (plan.has_step()) {
      offsets[key.timeline] = key.position - plan.step().step();
    }
  }
  return offsets;
}

absl::Status CheckWhole(const Log& log) {
  LogKey before;
  for (const auto& [key, record] : log) {
    if (!record.plan().has_rollback() && key.position != before.position + 1) {
      return absl::UnavailableError(absl::StrCat("entry ", before.position + 1, " of timeline ",
                                                 key.timeline, ", before entry ", key.position,
                                                 ", is not to be had"));
    }
    before = key;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddToldSteps(const v1::JobDefinition& job, const ClientHistory& history, Log& log) {
  const Begun begun = LivesOf(history);
  const std::map<uint64_t, uint64_t> offsets = OffsetsOf(log);
  for (const ClientHistory::Told& told : history.told) {
    const uint64_t timeline = history.operations[told.operation].timeline;
    const auto offset = offsets.find(timeline);
    if (offset == offsets.end()) {
      return absl::DataLossError(absl::StrCat("step ", told.record.step, " of timeline ", timeline,
                                              " was told, the shard knows of no such timeline"));
    }
    const LogKey key = {timeline, offset->second + told.record.step};
    if (log.count(key) > 0) continue;
    KAON_ASSIGN_OR_RETURN(log[key], RecordOf(job, key, told.record, begun));
  }
  return CheckWhole(log);
}

absl::StatusOr<std::vector<TakenBack>> FindTakenBack(const Log& log, uint64_t most) {
  std::vector<TakenBack> all;
  // Steps of the job's history at that entry, oldest first.
  std::vector<TakenBack> live;
  for (const auto& [key, record] : log) {
    const v1::StepPlan& plan = record.plan();
    if (plan.has_step()) live.push_back({key.timeline, plan.step().step(), 0});
    if (!plan.has_rollback()) continue;
    size_t steps = 0;
    while (!live.empty() && live.back().step > plan.rollback().target().step()) {
      live.back().next_timeline = key.timeline;
      all.push_back(live.back());
      live.pop_back();
      ++steps;
    }
    if (steps <= most) continue;
    return absl::DataLossError(absl::StrCat("entry ", key.position, " of timeline ", key.timeline,
                                            " takes back ", steps, " steps, at most ", most,
                                            " may be lost"));
  }
  return all;
}

}  // namespace kaon::crash
