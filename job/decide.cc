#include "job/decide.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "job/loss_scaler.h"
#include "job/norm_use.h"
#include "job/update_bound.h"
#include "kernels/mutation.h"
#include "kernels/reduce/grad_clip.h"

namespace kaon::job {

namespace {

// Rows of all votes by parameter id; null for a parameter that no vote reports. Sums over
// parameters run in this order, so they do not depend on the number of shards ([C1]).
using SumsById = std::vector<const v1::ParameterSums*>;

SumsById Gather(const v1::RegisterBody& job, const std::vector<v1::Prepared>& prepared) {
  SumsById sums(job.definition().parameters_size());
  for (const v1::Prepared& vote : prepared) {
    for (const v1::ParameterSums& row : vote.sums()) {
      if (row.parameter_id() >= sums.size() || sums[row.parameter_id()] != nullptr) continue;
      sums[row.parameter_id()] = &row;
    }
  }
  return sums;
}

std::string NameOf(const v1::RegisterBody& job, uint32_t parameter_id) {
  if (parameter_id >= job.definition().parameters_size()) return absl::StrCat("#", parameter_id);
  return job.definition().parameters(parameter_id).name();
}

// Returns the first one in (parameter, rank) order over all shards.
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

// Sets the token-weighted mean over the workers that reported a loss. Each worker counts once,
// however many shards report its loss.
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

// Counts and scales only parameters that have a gradient this step ([C2], [T7]). Frozen parameters
// join no group and no norm ([T8]).
std::vector<kernels::ClipInput> ClipInputsOf(const NormUse& use, const SumsById& sums) {
  std::vector<kernels::ClipInput> inputs;
  for (uint32_t id = 0; id < sums.size(); ++id) {
    const v1::ParameterSums* const row = sums[id];
    if (row == nullptr || row->missing()) continue;
    const ParameterNormUse& parameter = use.parameters[id];
    if (parameter.group < 0) continue;
    inputs.push_back({parameter.group, parameter.norm_group, parameter.exempt, parameter.counted,
                      parameter.takes_sum ? row->sum_squares() : 0});
  }
  return inputs;
}

// Adds the norm and the clip factor of every norm group and of every group ([C3]-[C8]). If the job
// reports no norms, only those that the decision reads are set ([T5]).
void AddNorms(const v1::JobDefinition& job, const NormUse& use, const SumsById& sums,
              v1::StepDecision& decision) {
  kernels::ClipPolicy policy;
  for (const NormGroupUse& group : use.norm_groups) {
    policy.max_grad_norms.push_back(group.max_grad_norm);
  }
  policy.floor = job.clip_floor();
  if (job.clip_scope() == v1::CLIP_SCOPE_ALL) policy.scope = kernels::ClipScope::kAll;
  const kernels::ClipResult clip =
      kernels::ClipByNorm(ClipInputsOf(use, sums), job.groups_size(), policy);
  for (size_t n = 0; n < use.norm_groups.size(); ++n) {
    const NormGroupUse& group = use.norm_groups[n];
    v1::NormGroupNorm& norm = *decision.add_norm_groups();
    norm.set_norm_group(group.name);
    if (use.reports_all || group.reads_norm) norm.set_norm(clip.norm_groups[n].norm);
    if (use.reports_all || group.reads_live_norm) norm.set_live_norm(clip.norm_groups[n].live_norm);
    norm.set_clip_factor(clip.norm_groups[n].clip_factor);
  }
  const v1::NormGroupNorm& main = decision.norm_groups(0);
  if (main.has_norm()) decision.set_grad_norm(main.norm());
  if (main.has_live_norm()) decision.set_live_norm(main.live_norm());
  for (int g = 0; g < job.groups_size(); ++g) {
    v1::GroupNorm& norm = *decision.add_norms();
    norm.set_group(job.groups(g).name());
    if (use.reports_all) norm.set_norm(clip.group_norms[g]);
    norm.set_exempt(use.exempt[g]);
    norm.set_clip_factor(1);
    if (use.exempt[g]) continue;
    for (const v1::NormGroupNorm& own : decision.norm_groups()) {
      const bool is_own = own.norm_group() == job.groups(g).norm_group();
      if (is_own) norm.set_clip_factor(own.clip_factor());
    }
  }
}

// Skips the whole step if the norm of main is above the threshold, also for groups of other norms
// ([T4]). Without a live gradient the norm is 0, never above.
void CheckThreshold(const v1::JobDefinition& job, v1::StepDecision& decision) {
  if (!job.has_grad_norm_skip_threshold()) return;
  if (!(decision.live_norm() > job.grad_norm_skip_threshold())) return;
  Skip(absl::StrCat("gradient norm ", decision.live_norm(), " of norm group ", kMainNormGroup,
                    " is above grad_norm_skip_threshold ", job.grad_norm_skip_threshold()),
       decision);
}

// Returns why finite gradients are still an overflow ([T3]): the first parameter in id order with
// too large an element. Reads neither a norm nor a sum over shards ([T5]).
std::optional<std::string> TooLarge(const v1::RegisterBody& job, const NormUse& use,
                                    const SumsById& sums, const v1::StepDecision& decision) {
  for (uint32_t id = 0; id < sums.size(); ++id) {
    const v1::ParameterSums* const row = sums[id];
    if (row == nullptr || row->missing()) continue;
    const ParameterNormUse& parameter = use.parameters[id];
    if (parameter.group < 0) continue;
    const double factor =
        parameter.exempt ? 1 : decision.norm_groups(parameter.norm_group).clip_factor();
    const double largest = row->absolute_max() * factor;
    if (largest <= kMostGradient) continue;
    return absl::StrCat("gradient of parameter ", NameOf(job, id), " has an element of size ",
                        row->absolute_max(), factor == 1 ? "" : absl::StrCat(" * ", factor),
                        ", must be <= 2^62 = ", kMostGradient, " after clipping");
  }
  return std::nullopt;
}

// Returns why a step with sound gradients is not applied ([T10]): the first parameter in id order
// whose new weights might not be finite. This is an estimate, because the state is not known here.
// Writing the weights finds the rest (kernels/update_fault.h).
std::optional<std::string> Overflows(const v1::RegisterBody& job, const v1::StepBody& step,
                                     const NormUse& use, const SumsById& sums,
                                     const v1::StepDecision& decision) {
  for (uint32_t id = 0; id < sums.size(); ++id) {
    const v1::ParameterSums* const row = sums[id];
    const ParameterNormUse& parameter = use.parameters[id];
    if (row == nullptr || row->missing() || parameter.group < 0) continue;
    if (parameter.group >= step.rates_size()) continue;
    const int index = static_cast<int>(id);
    const v1::ParameterPlacement& placement = job.placement().parameters(index);
    UpdateFacts facts;
    facts.lr = step.rates(parameter.group).learning_rate() * placement.lr_multiplier();
    facts.weight_decay_multiplier = placement.weight_decay_multiplier();
    facts.num_elements = row->num_elements();
    facts.weight_absolute_max = row->weight_absolute_max();
    facts.gradient_absolute_max = row->absolute_max();
    if (!parameter.exempt) {
      facts.gradient_absolute_max *= decision.norm_groups(parameter.norm_group).clip_factor();
    }
    const double most = MostWeightAfter(job.definition().groups(parameter.group), facts);
    if (most <= std::numeric_limits<float>::max()) continue;
    return absl::StrCat("update of parameter ", NameOf(job, id), " takes a weight to ", most,
                        ", must be <= ", std::numeric_limits<float>::max(), ": learning rate ",
                        facts.lr, ", largest weight ", facts.weight_absolute_max,
                        ", largest gradient ", facts.gradient_absolute_max);
  }
  return std::nullopt;
}

// Returns the fields that an entry other than a train step passes on (protocol.md 2.1 rule 8).
v1::StepDecision PassOn(const v1::StepRecord* previous) {
  v1::StepDecision decision;
  decision.set_outcome(v1::OUTCOME_APPLY);
  decision.set_next_loss_scale(1);
  if (previous == nullptr) return decision;
  const v1::StepDecision& before = previous->decision();
  decision.set_next_loss_scale(before.next_loss_scale());
  decision.set_applied_updates(before.applied_updates());
  decision.set_clip_reductions_total(before.clip_reductions_total());
  if (before.has_loss_scaler()) *decision.mutable_loss_scaler() = before.loss_scaler();
  return decision;
}

// Takes over the fields that the decision on the next step starts from; the state of a checkpoint
// or of a snapshot comes with them.
void TakeOver(const v1::StepDecision& last, v1::StepDecision& decision) {
  decision.set_next_loss_scale(last.next_loss_scale());
  decision.set_applied_updates(last.applied_updates());
  decision.set_clip_reductions_total(last.clip_reductions_total());
  decision.clear_loss_scaler();
  if (last.has_loss_scaler()) *decision.mutable_loss_scaler() = last.loss_scaler();
}

void SetLossScale(const LossScale& scale, v1::StepDecision& decision) {
  decision.set_next_loss_scale(scale.scale);
  if (scale.state.has_value()) *decision.mutable_loss_scaler() = *scale.state;
}

void DecideLoad(const v1::RegisterBody& job, const std::vector<v1::Prepared>& prepared,
                v1::StepDecision& decision) {
  if (const std::optional<v1::NonFinite> bad = FirstNonFinite(prepared)) {
    Skip(absl::StrCat("non-finite initial weight of parameter ", NameOf(job, bad->parameter_id())),
         decision);
    return;
  }
  if (const std::optional<uint32_t> id = FirstMissing(prepared)) {
    Skip(absl::StrCat("no initial weights for parameter ", NameOf(job, *id)), decision);
  }
}

// Skips the whole step on every shard, exempt groups included, if a gradient is not finite or too
// large ([T3]). Adds the norms unless a gradient is not finite.
bool CheckOverflow(const v1::RegisterBody& job, const NormUse& use, const SumsById& sums,
                   const std::vector<v1::Prepared>& prepared, v1::StepDecision& decision) {
  if (const std::optional<v1::NonFinite> bad = FirstNonFinite(prepared)) {
    const std::string from =
        bad->rank() < 0 ? "in the sum over ranks" : absl::StrCat("from rank ", bad->rank());
    Skip(absl::StrCat("non-finite gradient of parameter ", NameOf(job, bad->parameter_id()), " ",
                      from),
         decision);
    return true;
  }
  AddNorms(job.definition(), use, sums, decision);
  if (use.reads_any) decision.set_clip_reductions_total(decision.clip_reductions_total() + 1);
  std::optional<std::string> reason = TooLarge(job, use, sums, decision);
  if (!reason.has_value()) return false;
  Skip(*std::move(reason), decision);
  return true;
}

void DecideTrain(const v1::RegisterBody& job, const v1::StepBody& step,
                 const std::vector<v1::Prepared>& prepared, v1::StepDecision& decision) {
  AddLoss(step, prepared, decision);
  const NormUse use = NormUseOf(job);
  const SumsById sums = Gather(job, prepared);
  const bool overflow = CheckOverflow(job, use, sums, prepared, decision);
  LossScale scale;
  scale.scale = step.loss_scale();
  if (decision.has_loss_scaler()) scale.state = decision.loss_scaler();
  SetLossScale(NextLossScale(job.definition().loss_scaler(), scale, overflow), decision);
  if (overflow) return;
  if (std::optional<std::string> reason = Overflows(job, step, use, sums, decision)) {
    return Skip(*std::move(reason), decision);
  }
  CheckThreshold(job.definition(), decision);
  // A skipped step does not advance the schedules (edge case 52).
  if (decision.outcome() == v1::OUTCOME_APPLY ||
      kernels::Mutated(kernels::Mutation::kScheduleAdvancesOnSkip)) {
    decision.set_applied_updates(decision.applied_updates() + 1);
  }
}

}  // namespace

v1::StepDecision Decide(const v1::RegisterBody& job, const v1::StepPlan& plan,
                        const std::vector<v1::Prepared>& prepared, const v1::StepRecord* previous) {
  // The next job starts from nothing of this one.
  v1::StepDecision decision = PassOn(plan.has_job_deletion() ? nullptr : previous);
  // The order of the votes does not matter, so the placement does not either.
  uint64_t state_digest = 0;
  for (const v1::Prepared& vote : prepared) state_digest += vote.state_digest();
  decision.set_state_digest(state_digest);
  if (plan.has_registration()) {
    SetLossScale(InitialLossScale(job.definition().loss_scaler()), decision);
  } else if (plan.has_restore()) {
    TakeOver(plan.restore().last_decision(), decision);
  } else if (plan.has_rollback()) {
    TakeOver(plan.rollback().target().last_decision(), decision);
  } else if (plan.has_step() && plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS) {
    DecideLoad(job, prepared, decision);
  } else if (plan.has_step()) {
    DecideTrain(job, plan.step(), prepared, decision);
  }
  return decision;
}

}  // namespace kaon::job
