#include "job/decide.h"

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "job/rule_config.h"
#include "kernels/grad_clip.h"

namespace kaon::job {

namespace {

// In parameter-id order, so that sums over parameters do not depend on the number of shards ([C1]).
using SumsById = std::map<uint32_t, v1::ParameterSums>;

SumsById Gather(const v1::RegisterBody& job, const std::vector<v1::Prepared>& prepared) {
  SumsById sums;
  for (const v1::Prepared& vote : prepared) {
    for (const v1::ParameterSums& row : vote.sums()) {
      // Frozen parameters join no group and no norm ([T8]).
      if (row.parameter_id() >= job.definition().parameters_size() ||
          job.definition().parameters(row.parameter_id()).frozen()) {
        continue;
      }
      sums.emplace(row.parameter_id(), row);
    }
  }
  return sums;
}

std::string NameOf(const v1::RegisterBody& job, uint32_t parameter_id) {
  if (parameter_id >= job.definition().parameters_size()) return absl::StrCat("#", parameter_id);
  return job.definition().parameters(parameter_id).name();
}

// First in (parameter, rank) order over all shards.
std::optional<v1::NonFinite> FirstNonFinite(const std::vector<v1::Prepared>& prepared) {
  std::optional<v1::NonFinite> first;
  const auto consider = [&first](const v1::NonFinite& seen) {
    if (!first || seen.parameter_id() < first->parameter_id()) first = seen;
  };
  for (const v1::Prepared& vote : prepared) {
    if (vote.has_first_non_finite()) consider(vote.first_non_finite());
    for (const v1::ParameterSums& row : vote.sums()) {
      if (row.num_non_finite() == 0 && std::isfinite(row.sum_squares())) continue;
      v1::NonFinite seen;
      seen.set_parameter_id(row.parameter_id());
      seen.set_rank(-1);
      consider(seen);
    }
  }
  return first;
}

std::optional<uint32_t> FirstMissing(const std::vector<v1::Prepared>& prepared) {
  std::optional<uint32_t> first;
  for (const v1::Prepared& vote : prepared) {
    for (const v1::ParameterSums& row : vote.sums()) {
      if (row.missing() && (!first || row.parameter_id() < *first)) first = row.parameter_id();
    }
  }
  return first;
}

void Skip(std::string reason, v1::StepDecision& decision) {
  decision.set_outcome(v1::OUTCOME_SKIP);
  decision.set_reason(std::move(reason));
}

// Token-weighted mean over the workers that reported a loss; each is counted once, however many
// shards carry it.
void AddLoss(const v1::StepBody& step, const std::vector<v1::Prepared>& prepared,
             v1::StepDecision& decision) {
  std::map<uint32_t, double> loss_of;
  for (const v1::Prepared& vote : prepared) {
    for (const v1::WorkerLoss& loss : vote.losses()) loss_of.emplace(loss.rank(), loss.loss());
  }
  double sum = 0;
  double weight = 0;
  for (const v1::Member& member : step.members()) {
    const auto it = loss_of.find(member.rank());
    if (it == loss_of.end()) continue;
    sum += member.token_weight() * it->second;
    weight += member.token_weight();
  }
  if (weight > 0) decision.set_loss(sum / weight);
}

// Norms of every group, exempt ones included ([C7]), and the factors of the others ([C5], scope
// live [C8]).
void AddNorms(const v1::RegisterBody& job, const SumsById& sums, v1::StepDecision& decision) {
  const v1::JobDefinition& definition = job.definition();
  std::vector<bool> exempt;
  for (const v1::ParameterGroup& group : definition.groups()) {
    exempt.push_back(IsClipExempt(group));
  }
  std::vector<kernels::ClipInput> inputs;
  for (const auto& [id, row] : sums) {
    // No gradient this step: neither counted nor touched ([C2], [T7]).
    if (row.missing()) continue;
    const int group = GroupIndex(definition, job.placement().parameters(id).group());
    if (group < 0) continue;
    inputs.push_back({group, row.sum_squares()});
  }
  const kernels::ClipResult clip = kernels::ClipByNorm(inputs, exempt, definition.max_grad_norm());
  decision.set_grad_norm(clip.grad_norm);
  decision.set_live_norm(clip.live_norm);
  for (int g = 0; g < definition.groups_size(); ++g) {
    v1::GroupNorm& norm = *decision.add_norms();
    norm.set_group(definition.groups(g).name());
    norm.set_norm(clip.group_norms[g]);
    norm.set_exempt(exempt[g]);
    norm.set_clip_factor(clip.clip_factors[g]);
  }
}

v1::StepDecision DecideLoad(const v1::RegisterBody& job, const std::vector<v1::Prepared>& prepared,
                            double next_loss_scale) {
  v1::StepDecision decision;
  decision.set_next_loss_scale(next_loss_scale);
  decision.set_outcome(v1::OUTCOME_APPLY);
  if (const std::optional<v1::NonFinite> bad = FirstNonFinite(prepared)) {
    Skip(absl::StrCat("non-finite initial weight of parameter ", NameOf(job, bad->parameter_id())),
         decision);
    return decision;
  }
  if (const std::optional<uint32_t> id = FirstMissing(prepared)) {
    Skip(absl::StrCat("no initial weights for parameter ", NameOf(job, *id)), decision);
  }
  return decision;
}

v1::StepDecision DecideTrain(const v1::RegisterBody& job, const v1::StepBody& step,
                             const std::vector<v1::Prepared>& prepared) {
  v1::StepDecision decision;
  // A constant scaler never moves ([T2b]).
  decision.set_next_loss_scale(step.loss_scale());
  AddLoss(step, prepared, decision);
  if (const std::optional<v1::NonFinite> bad = FirstNonFinite(prepared)) {
    // [T3]: the whole step on every shard, exempt groups included; norms are absent.
    const std::string from =
        bad->rank() < 0 ? "in the sum over ranks" : absl::StrCat("from rank ", bad->rank());
    Skip(absl::StrCat("non-finite gradient of parameter ", NameOf(job, bad->parameter_id()), " ",
                      from),
         decision);
    return decision;
  }
  decision.set_outcome(v1::OUTCOME_APPLY);
  AddNorms(job, Gather(job, prepared), decision);
  return decision;
}

}  // namespace

v1::StepDecision Decide(const v1::RegisterBody& job, const v1::StepPlan& plan,
                        const std::vector<v1::Prepared>& prepared, const v1::StepRecord* previous) {
  // protocol.md 2.1 rule 8: the loss scale of t comes from StepRecord(t-1) only; entries that are
  // no train step pass it on.
  const double passed_on = previous == nullptr ? 1.0 : previous->decision().next_loss_scale();
  if (!plan.has_step()) {
    v1::StepDecision decision;
    decision.set_outcome(v1::OUTCOME_APPLY);
    decision.set_next_loss_scale(passed_on);
    return decision;
  }
  if (plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS) {
    return DecideLoad(job, prepared, passed_on);
  }
  return DecideTrain(job, plan.step(), prepared);
}

}  // namespace kaon::job
