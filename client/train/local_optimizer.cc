#include "client/train/local_optimizer.h"

#include <glog/logging.h>

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/job_conversion.h"
#include "job/definition.h"
#include "job/resolve.h"
#include "job/rule_config.h"
#include "kernels/grad_clip.h"
#include "proto/status_macros.h"

namespace kaon::train {
namespace {

// Token-weighted mean over the workers that reported a loss.
std::optional<double> MeanLoss(absl::Span<const StepContribution> contributions) {
  double sum = 0;
  double weight = 0;
  for (const StepContribution& contribution : contributions) {
    if (!contribution.loss.has_value()) continue;
    sum += contribution.token_weight * *contribution.loss;
    weight += contribution.token_weight;
  }
  if (weight == 0) return std::nullopt;
  return sum / weight;
}

}  // namespace

absl::StatusOr<LocalOptimizer> LocalOptimizer::Create(const kaon::JobDefinition& job,
                                                      std::unique_ptr<kernels::Backend> backend,
                                                      std::vector<std::vector<float>> weights) {
  LocalOptimizer optimizer;
  KAON_ASSIGN_OR_RETURN(const v1::RegisterBody body, job::Resolve(client::ToProto(job)));
  optimizer.job_ = body.definition();
  const size_t num_parameters = optimizer.job_.parameters_size();
  if (weights.size() != num_parameters) {
    return absl::InvalidArgumentError(absl::StrCat(
        "weights of ", weights.size(), " parameters given, the job has ", num_parameters));
  }
  for (const v1::ParameterGroup& group : optimizer.job_.groups()) {
    optimizer.exempt_.push_back(job::IsClipExempt(group));
  }
  for (int id = 0; id < optimizer.job_.parameters_size(); ++id) {
    const v1::ParameterSpec& spec = optimizer.job_.parameters(id);
    if (weights[id].size() != job::NumElements(spec)) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", spec.name(), ": ",
                                                     weights[id].size(), " weights given, it has ",
                                                     job::NumElements(spec), " elements"));
    }
    Parameter parameter;
    parameter.name = spec.name();
    parameter.shape.assign(spec.shape().begin(), spec.shape().end());
    const v1::ParameterPlacement& placement = body.placement().parameters(id);
    parameter.group = job::GroupIndex(optimizer.job_, placement.group());
    if (parameter.group >= 0) {
      parameter.rule = job::RuleConfigOf(optimizer.job_.groups(parameter.group), spec, placement);
      for (const kernels::StateSlot& slot : kernels::StateSlots(parameter.rule, parameter.shape)) {
        parameter.state.emplace_back(slot.num_bytes);
      }
    }
    optimizer.parameters_.push_back(std::move(parameter));
    optimizer.sums_.emplace_back(weights[id].size(), 0.0f);
  }
  optimizer.sum_squares_.resize(weights.size());
  optimizer.newton_schulz_calls_.resize(weights.size());
  optimizer.weights_ = std::move(weights);
  optimizer.backend_ = std::move(backend);
  return optimizer;
}

std::optional<std::string> LocalOptimizer::Fold(absl::Span<const StepContribution> contributions) {
  double total_weight = 0;
  for (const StepContribution& contribution : contributions) {
    total_weight += contribution.token_weight;
  }
  std::optional<std::string> reason;
  for (size_t id = 0; id < parameters_.size(); ++id) {
    if (parameters_[id].group < 0) continue;
    const absl::Span<float> sum = absl::MakeSpan(sums_[id]);
    for (size_t rank = 0; rank < contributions.size(); ++rank) {
      const TensorBuffers& gradients = *contributions[rank].gradients;
      const int64_t non_finite =
          backend_->Fold(gradients.dtype, gradients.tensors[id].data(),
                         static_cast<float>(contributions[rank].token_weight), rank == 0, sum);
      if (non_finite >= 0 && !reason.has_value()) {
        reason = absl::StrCat("non-finite gradient of parameter ", parameters_[id].name,
                              " from rank ", rank);
      }
    }
    backend_->FinishMean(static_cast<float>(total_weight), 1.0f, sum);
    sum_squares_[id] = backend_->ComputeNorm(sum).sum_squares;
    if (!std::isfinite(sum_squares_[id]) && !reason.has_value()) {
      reason = absl::StrCat("non-finite gradient of parameter ", parameters_[id].name,
                            " in the sum over ranks");
    }
  }
  return reason;
}

void LocalOptimizer::Apply(double multiplier, const std::vector<double>& clip_factors) {
  for (size_t id = 0; id < parameters_.size(); ++id) {
    Parameter& parameter = parameters_[id];
    if (parameter.group < 0) continue;
    std::vector<absl::Span<std::byte>> state;
    for (std::vector<std::byte>& slot : parameter.state) state.push_back(absl::MakeSpan(slot));
    kernels::UpdateScalars scalars;
    scalars.lr = job_.groups(parameter.group).lr() * multiplier;
    scalars.clip_factor = clip_factors[parameter.group];
    // [M6]: counts applied updates only.
    scalars.t = ++parameter.updates;
    kernels::UpdateBuffers buffers;
    buffers.grad = sums_[id];
    buffers.param = weights_[id];
    buffers.new_param = absl::MakeSpan(weights_[id]);
    buffers.state = state;
    newton_schulz_calls_[id] +=
        backend_->ApplyUpdate(parameter.rule, scalars, parameter.shape, buffers)
            .newton_schulz_calls;
  }
}

kaon::StepRecord LocalOptimizer::Step(absl::Span<const StepContribution> contributions) {
  ++step_;
  const double multiplier = contributions[0].learning_rate_multiplier;
  for (const StepContribution& contribution : contributions) {
    CHECK_EQ(contribution.step, step_);
    CHECK_EQ(contribution.learning_rate_multiplier, multiplier);
  }
  kaon::StepRecord record;
  record.step = step_;
  record.loss = MeanLoss(contributions);
  const std::optional<std::string> reason = Fold(contributions);
  if (reason.has_value()) {
    record.reason = *reason;
    return record;
  }
  std::vector<kernels::ClipInput> inputs;
  for (size_t id = 0; id < parameters_.size(); ++id) {
    if (parameters_[id].group >= 0) inputs.push_back({parameters_[id].group, sum_squares_[id]});
  }
  const kernels::ClipResult clip = kernels::ClipByNorm(inputs, exempt_, job_.max_grad_norm());
  record.applied = true;
  record.grad_norm = clip.grad_norm;
  record.live_norm = clip.live_norm;
  for (int group = 0; group < job_.groups_size(); ++group) {
    record.norms.push_back({job_.groups(group).name(), clip.group_norms[group], exempt_[group],
                            clip.clip_factors[group]});
  }
  Apply(multiplier, clip.clip_factors);
  return record;
}

}  // namespace kaon::train
