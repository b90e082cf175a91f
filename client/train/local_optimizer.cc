#include "client/train/local_optimizer.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/wire/job_conversion.h"
#include "client/wire/record_conversion.h"
#include "job/decide.h"
#include "job/definition.h"
#include "job/resolve.h"
#include "job/route_validation.h"
#include "job/rule_config.h"
#include "kernels/float_bits.h"
#include "kernels/reduce/digest.h"
#include "proto/decide_version.h"
#include "proto/status_macros.h"

namespace kaon::train {
namespace {

bool IsMissing(const StepContribution& contribution, uint32_t id) {
  const std::vector<uint32_t>& missing = contribution.missing_parameters;
  return std::find(missing.begin(), missing.end(), id) != missing.end();
}

}  // namespace

absl::StatusOr<LocalOptimizer> LocalOptimizer::Create(const kaon::JobDefinition& job,
                                                      std::unique_ptr<kernels::Backend> backend,
                                                      std::vector<std::vector<float>> weights) {
  return Create(client::ToProto(job), std::move(backend), std::move(weights));
}

absl::StatusOr<LocalOptimizer> LocalOptimizer::Create(const v1::JobDefinition& job,
                                                      std::unique_ptr<kernels::Backend> backend,
                                                      std::vector<std::vector<float>> weights) {
  LocalOptimizer optimizer;
  KAON_ASSIGN_OR_RETURN(optimizer.registration_, job::Resolve(job));
  const v1::RegisterBody& registration = optimizer.registration_;
  const size_t num_parameters = registration.definition().parameters_size();
  if (weights.size() != num_parameters) {
    return absl::InvalidArgumentError(absl::StrCat(
        "weights of ", weights.size(), " parameters given, the job has ", num_parameters));
  }
  optimizer.backend_ = std::move(backend);
  uint64_t largest = 0;
  for (size_t id = 0; id < num_parameters; ++id) {
    KAON_RETURN_IF_ERROR(optimizer.AddParameter(static_cast<int>(id), weights[id]));
    largest = std::max(largest, optimizer.parameters_[id].weights.region().size());
    // The tensor has a copy.
    weights[id] = {};
  }
  KAON_ASSIGN_OR_RETURN(optimizer.next_, kernels::Tensor::Create(*optimizer.backend_, largest));
  optimizer.norm_use_ = job::NormUseOf(registration);
  optimizer.newton_schulz_calls_.resize(num_parameters);
  v1::StepPlan& plan = *optimizer.record_.mutable_plan();
  plan.set_decide_version(proto::kDecideVersion);
  *plan.mutable_registration() = registration;
  *optimizer.record_.mutable_decision() = job::Decide(registration, plan, {}, nullptr);
  return optimizer;
}

absl::Status LocalOptimizer::AddParameter(int id, const std::vector<float>& weights) {
  const v1::JobDefinition& job = registration_.definition();
  const v1::ParameterSpec& spec = job.parameters(id);
  if (weights.size() != job::NumElements(spec)) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", spec.name(), ": ", weights.size(),
                                                   " weights given, it has ",
                                                   job::NumElements(spec), " elements"));
  }
  Parameter& parameter = parameters_.emplace_back();
  parameter.shape.assign(spec.shape().begin(), spec.shape().end());
  const uint64_t bytes = weights.size() * sizeof(float);
  KAON_ASSIGN_OR_RETURN(parameter.weights, kernels::Tensor::Create(*backend_, bytes));
  parameter.weights.Fill(weights);
  const kernels::Region region = parameter.weights.region();
  parameter.weights_digest = backend_->Digest(id, kernels::kWeightSlot, region);
  parameter.largest_weight_bits = backend_->LargestMagnitude(region);
  const v1::ParameterPlacement& placement = registration_.placement().parameters(id);
  parameter.group = job::GroupIndex(job, placement.group());
  if (parameter.group < 0) return absl::OkStatus();
  KAON_ASSIGN_OR_RETURN(parameter.sum, kernels::Tensor::Create(*backend_, bytes));
  parameter.accumulation = backend_->Accumulate(parameter.sum.region());
  parameter.rule = job::RuleConfigOf(job.groups(parameter.group), spec, placement);
  for (const kernels::StateSlot& slot : kernels::StateSlots(parameter.rule, parameter.shape)) {
    KAON_ASSIGN_OR_RETURN(kernels::Tensor state,
                          kernels::Tensor::Create(*backend_, slot.num_bytes));
    parameter.state.push_back(std::move(state));
    parameter.slots_digest += backend_->Digest(id, static_cast<uint32_t>(parameter.state.size()),
                                               parameter.state.back().region());
  }
  return absl::OkStatus();
}

absl::Status LocalOptimizer::CheckMultipliers(const job::RateMultipliers& multipliers) const {
  const v1::JobDefinition& job = registration_.definition();
  return job::ValidateMultipliers(job.groups(), job, registration_.placement(), multipliers);
}

v1::StepPlan LocalOptimizer::PlanOf(absl::Span<const StepContribution> contributions) const {
  v1::StepPlan plan;
  plan.set_job(registration_.definition().name());
  plan.set_decide_version(proto::kDecideVersion);
  v1::StepBody& step = *plan.mutable_step();
  step.set_step(step_);
  step.set_kind(v1::STEP_KIND_TRAIN);
  for (size_t rank = 0; rank < contributions.size(); ++rank) {
    v1::Member& member = *step.add_members();
    member.set_rank(static_cast<uint32_t>(rank));
    member.set_token_weight(contributions[rank].token_weight);
    member.set_micro_batches(1);
  }
  step.set_loss_scale(loss_scale());
  job::AddRates(registration_.definition(), record_.decision().applied_updates(),
                {contributions[0].learning_rate_multiplier, contributions[0].group_multipliers},
                step);
  return plan;
}

v1::ParameterSums LocalOptimizer::FoldParameter(const v1::StepBody& step, uint32_t id,
                                                absl::Span<const StepContribution> contributions,
                                                v1::Prepared& prepared) {
  Parameter& parameter = parameters_[id];
  kernels::Accumulation& sum = *parameter.accumulation;
  double total_weight = 0;
  parameter.missing = true;
  sum.Begin();
  for (size_t rank = 0; rank < contributions.size(); ++rank) {
    // A worker without a gradient counts in the mean as zeros.
    total_weight += contributions[rank].token_weight;
    if (IsMissing(contributions[rank], id)) continue;
    const TensorBuffers& gradients = *contributions[rank].gradients;
    const absl::Span<const std::byte> bytes = gradients.tensors[id];
    sum.Fold({gradients.dtype,
              {&bytes, 1},
              0,
              static_cast<uint32_t>(rank),
              static_cast<float>(contributions[rank].token_weight),
              parameter.missing});
    parameter.missing = false;
  }
  v1::ParameterSums sums;
  sums.set_parameter_id(id);
  sums.set_num_elements(parameter.sum.region().num_floats());
  kernels::MeanScalars scalars;
  scalars.parameter_id = id;
  scalars.takes_sum = norm_use_.parameters[id].takes_sum;
  if (!parameter.missing) {
    scalars.total_weight = static_cast<float>(total_weight);
    scalars.loss_scale = static_cast<float>(step.loss_scale());
  } else if (registration_.definition().groups(parameter.group).missing_gradient() ==
             v1::MISSING_GRADIENT_ZERO) {
    sum.SetZero();
    parameter.missing = false;
  }
  sums.set_missing(parameter.missing);
  if (parameter.missing) return sums;
  const kernels::GradNorm norm = sum.FinishMean(scalars).norm;
  sums.set_sum_squares(norm.sum_squares);
  sums.set_absolute_max(norm.absolute_max);
  sums.set_num_non_finite(static_cast<uint64_t>(norm.num_non_finite));
  sums.set_weight_absolute_max(kernels::FloatOf(parameter.largest_weight_bits));
  int non_finite_rank = -1;
  for (size_t rank = 0; rank < contributions.size() && non_finite_rank < 0; ++rank) {
    const auto contribution = static_cast<uint32_t>(rank);
    if (sum.FactsOf(contribution).non_finite) non_finite_rank = static_cast<int>(rank);
  }
  if ((non_finite_rank >= 0 || norm.num_non_finite > 0) && !prepared.has_first_non_finite()) {
    prepared.mutable_first_non_finite()->set_parameter_id(id);
    prepared.mutable_first_non_finite()->set_rank(non_finite_rank);
  }
  return sums;
}

v1::Prepared LocalOptimizer::Fold(const v1::StepPlan& plan,
                                  absl::Span<const StepContribution> contributions) {
  v1::Prepared prepared;
  for (uint32_t id = 0; id < parameters_.size(); ++id) {
    if (parameters_[id].group < 0) continue;
    *prepared.add_sums() = FoldParameter(plan.step(), id, contributions, prepared);
  }
  for (size_t rank = 0; rank < contributions.size(); ++rank) {
    if (!contributions[rank].loss.has_value()) continue;
    v1::WorkerLoss& loss = *prepared.add_losses();
    loss.set_rank(static_cast<uint32_t>(rank));
    loss.set_loss(*contributions[rank].loss);
  }
  prepared.set_state_digest(StateDigest());
  return prepared;
}

std::vector<std::vector<float>> LocalOptimizer::weights() const {
  std::vector<std::vector<float>> weights;
  for (const Parameter& parameter : parameters_) weights.push_back(parameter.weights.Floats());
  return weights;
}

uint64_t LocalOptimizer::StateDigest() const {
  uint64_t digest = 0;
  for (size_t id = 0; id < parameters_.size(); ++id) {
    const Parameter& parameter = parameters_[id];
    digest += parameter.weights_digest + parameter.slots_digest;
    digest += kernels::FactDigest(id, kernels::kUpdatesSlot, parameter.updates);
  }
  return digest;
}

void LocalOptimizer::Apply(const v1::StepRecord& record) {
  const v1::StepDecision& decision = record.decision();
  for (size_t id = 0; id < parameters_.size(); ++id) {
    Parameter& parameter = parameters_[id];
    if (parameter.group < 0 || parameter.missing) continue;
    const job::ParameterNormUse& norm_use = norm_use_.parameters[id];
    std::vector<kernels::Region> state;
    for (const kernels::Tensor& slot : parameter.state) state.push_back(slot.region());
    kernels::UpdateScalars scalars;
    scalars.lr = record.plan().step().rates(parameter.group).learning_rate() *
                 registration_.placement().parameters(static_cast<int>(id)).lr_multiplier();
    if (!norm_use.exempt) {
      scalars.clip_factor = decision.norm_groups(norm_use.norm_group).clip_factor();
    }
    // t counts applied updates only ([M6]).
    scalars.t = ++parameter.updates;
    scalars.parameter_id = static_cast<uint32_t>(id);
    kernels::UpdateBuffers buffers;
    const kernels::Region weights = parameter.weights.region();
    buffers.grad = parameter.sum.region();
    buffers.param = weights;
    buffers.new_param = next_.region().Sub(0, weights.size());
    buffers.state = state;
    const kernels::UpdateResult result =
        backend_->ApplyUpdate(parameter.rule, scalars, parameter.shape, buffers);
    newton_schulz_calls_[id] += result.newton_schulz_calls;
    backend_->Copy(buffers.new_param, weights);
    parameter.weights_digest = result.weights_digest;
    parameter.slots_digest = result.slots_digest;
    parameter.largest_weight_bits = result.largest_weight_bits;
  }
}

kaon::StepRecord LocalOptimizer::Step(absl::Span<const StepContribution> contributions) {
  ++step_;
  for (const StepContribution& contribution : contributions) {
    CHECK_EQ(contribution.step, step_);
    CHECK_EQ(contribution.learning_rate_multiplier, contributions[0].learning_rate_multiplier);
    CHECK(contribution.group_multipliers == contributions[0].group_multipliers);
  }
  v1::StepRecord record;
  *record.mutable_plan() = PlanOf(contributions);
  const v1::Prepared prepared = Fold(record.plan(), contributions);
  *record.mutable_decision() = job::Decide(registration_, record.plan(), {prepared}, &record_);
  if (record.decision().outcome() == v1::OUTCOME_APPLY) Apply(record);
  record_ = std::move(record);
  return client::ToPublic(record_);
}

}  // namespace kaon::train
