#include "tests/conformance/decision_trial.h"

#include <glog/logging.h>

#include <cmath>
#include <utility>

#include "job/decide.h"
#include "job/resolve.h"
#include "proto/decide_version.h"
#include "tests/conformance/gradient_sum.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::conformance {
namespace {

// Counters in the record of the step before.
constexpr uint64_t kUpdatesBefore = 5;
constexpr uint64_t kReductionsBefore = 3;

struct Decided {
  v1::StepDecision decision;
  reference::Decision expected;
};

std::vector<v1::Prepared> Votes(const DecisionTrial& trial, const v1::RegisterBody& job,
                                kernels::Backend& backend) {
  std::vector<v1::Prepared> votes(trial.num_shards);
  for (uint32_t id = 0; id < trial.gradients.size(); ++id) {
    if (trial.parameters[id].frozen) continue;
    const uint32_t shard = job.placement().parameters(static_cast<int>(id)).shard();
    v1::ParameterSums& row = *votes[shard].add_sums();
    row.set_parameter_id(id);
    row.set_num_elements(trial.gradients[id].size());
    row.set_missing(trial.parameters[id].missing);
    if (row.missing()) continue;
    const std::vector<float>& gradient = trial.gradients[id];
    const kernels::GradNorm norm =
        kernels::GradientSum(backend, gradient).accumulation().FinishMean({}).norm;
    row.set_sum_squares(norm.sum_squares);
    row.set_absolute_max(norm.absolute_max);
    row.set_num_zeros(static_cast<uint64_t>(norm.num_zeros));
    row.set_num_non_finite(static_cast<uint64_t>(norm.num_non_finite));
  }
  return votes;
}

Decided Decide(const DecisionTrial& trial, kernels::Backend& backend) {
  const v1::RegisterBody job = Registration(trial.job, trial.num_shards);
  v1::StepPlan plan;
  plan.set_decide_version(proto::kDecideVersion);
  plan.mutable_step()->set_step(kUpdatesBefore + 2);
  plan.mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  plan.mutable_step()->set_loss_scale(1);
  v1::StepRecord previous;
  previous.mutable_decision()->set_next_loss_scale(1);
  previous.mutable_decision()->set_applied_updates(kUpdatesBefore);
  previous.mutable_decision()->set_clip_reductions_total(kReductionsBefore);
  Decided decided;
  decided.decision = job::Decide(job, plan, Votes(trial, job, backend), &previous);
  std::vector<reference::DecisionParameter> parameters = trial.parameters;
  for (size_t id = 0; id < parameters.size(); ++id) {
    parameters[id].grad = reference::Widened(trial.gradients[id]);
  }
  decided.expected = reference::DecideStep(trial.policy, parameters);
  return decided;
}

// The larger of both; NaN stays.
void Include(double value, double expected, double& error) {
  const double off = std::fabs(value - expected) / (expected == 0 ? 1 : expected);
  if (!(off <= error)) error = off;
}

}  // namespace

v1::RegisterBody Registration(const v1::JobDefinition& job, int num_shards) {
  absl::StatusOr<v1::RegisterBody> body = job::Resolve(job);
  CHECK(body.ok()) << body.status();
  for (v1::ParameterPlacement& row : *body->mutable_placement()->mutable_parameters()) {
    row.set_shard(row.parameter_id() % static_cast<uint32_t>(num_shards));
  }
  body->mutable_placement()->set_num_shards(static_cast<uint32_t>(num_shards));
  return *std::move(body);
}

double OutcomeError(const DecisionTrial& trial, kernels::Backend& backend) {
  const auto [decision, expected] = Decide(trial, backend);
  int wrong = 0;
  const bool applied = decision.outcome() == v1::OUTCOME_APPLY;
  wrong += applied != expected.applied;
  wrong += decision.reason().empty() != expected.applied;
  wrong += decision.applied_updates() != kUpdatesBefore + (expected.applied ? 1 : 0);
  const bool read = expected.has_norms && expected.read_a_norm;
  wrong += decision.clip_reductions_total() != kReductionsBefore + (read ? 1 : 0);
  const size_t groups = expected.has_norms ? trial.policy.groups.size() : 0;
  const size_t norm_groups = expected.has_norms ? expected.norm_groups.size() : 0;
  if (decision.norms_size() != groups || decision.norm_groups_size() != norm_groups) {
    return wrong + 1;
  }
  for (size_t g = 0; g < groups; ++g) {
    wrong += decision.norms(static_cast<int>(g)).exempt() != trial.policy.groups[g].exempt();
  }
  return wrong;
}

double NormError(const DecisionTrial& trial, kernels::Backend& backend) {
  const auto [decision, expected] = Decide(trial, backend);
  double error = 0;
  for (int n = 0; n < decision.norm_groups_size(); ++n) {
    Include(decision.norm_groups(n).norm(), expected.norm_groups[n].norm, error);
    Include(decision.norm_groups(n).live_norm(), expected.norm_groups[n].live_norm, error);
  }
  for (int g = 0; g < decision.norms_size(); ++g) {
    Include(decision.norms(g).norm(), expected.group_norms[g], error);
  }
  Include(decision.grad_norm(), expected.norm_groups[0].norm, error);
  Include(decision.live_norm(), expected.norm_groups[0].live_norm, error);
  return error;
}

double FactorError(const DecisionTrial& trial, kernels::Backend& backend) {
  const auto [decision, expected] = Decide(trial, backend);
  double error = 0;
  for (int n = 0; n < decision.norm_groups_size(); ++n) {
    Include(decision.norm_groups(n).clip_factor(), expected.norm_groups[n].clip_factor, error);
  }
  for (int g = 0; g < decision.norms_size(); ++g) {
    const v1::ParameterGroup& group = trial.job.groups(g);
    const bool exempt = trial.policy.groups[g].exempt();
    const int norm_group = group.norm_group().empty() ? 0 : 1;
    Include(decision.norms(g).clip_factor(),
            exempt ? 1 : expected.norm_groups[norm_group].clip_factor, error);
  }
  return error;
}

}  // namespace kaon::conformance
