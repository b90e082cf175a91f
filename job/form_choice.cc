#include "job/form_choice.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "job/effective.h"
#include "job/names.h"
#include "job/rule_config.h"
#include "kernels/matrix_layout.h"
#include "kernels/optimizer_rule.h"
#include "proto/status_macros.h"

namespace kaon::job {
namespace {

// How many times as long as the short side the long one is, as a logarithm: distances of shapes
// are its differences.
double LogAspect(uint64_t rows, uint64_t cols) {
  return std::abs(std::log(static_cast<double>(rows)) - std::log(static_cast<double>(cols)));
}

// Rows of that dtype. What is no measurement, whoever sent it, is none.
FormTimes UsableTimes(const FormTimes& times, v1::NewtonSchulzDType dtype) {
  const auto is_time = [](double seconds) { return std::isfinite(seconds) && seconds > 0; };
  FormTimes usable;
  for (const v1::NewtonSchulzFormTime& time : times) {
    if (time.dtype() != dtype || time.rows() == 0 || time.cols() == 0) continue;
    if (is_time(time.standard_seconds()) && is_time(time.gram_seconds())) usable.push_back(time);
  }
  return usable;
}

// Multiply-adds of a step in standard form, by which matrices of one group weigh.
double WorkOf(const kernels::MatrixCount& matrices) {
  const double r = static_cast<double>(std::min(matrices.rows, matrices.cols));
  const double c = static_cast<double>(std::max(matrices.rows, matrices.cols));
  return static_cast<double>(matrices.count) * r * r * (2 * c + r);
}

absl::StatusOr<bool> IsGramFaster(const FormTimes& times, const v1::ParameterGroup& group,
                                  const v1::RegisterBody& registration) {
  const v1::JobDefinition& job = registration.definition();
  const v1::NewtonSchulzDType dtype = group.muon().ns_dtype();
  double standard = 0;
  double gram = 0;
  for (int id = 0; id < job.parameters_size(); ++id) {
    const v1::ParameterPlacement& placement = registration.placement().parameters(id);
    if (placement.group() != group.name()) continue;
    const v1::ParameterSpec& parameter = job.parameters(id);
    const kernels::RuleConfig rule = RuleConfigOf(group, parameter, placement);
    const std::vector<uint64_t> shape(parameter.shape().begin(), parameter.shape().end());
    KAON_ASSIGN_OR_RETURN(
        const std::vector<kernels::MatrixCount> counts,
        kernels::CountMatrices(std::get<kernels::MuonConfig>(rule).layout, shape));
    for (const kernels::MatrixCount& matrices : counts) {
      const absl::optional<double> gain = GramGain(
          times, dtype, static_cast<uint64_t>(matrices.rows), static_cast<uint64_t>(matrices.cols));
      if (!gain.has_value()) continue;
      standard += WorkOf(matrices);
      gram += WorkOf(matrices) / *gain;
    }
  }
  return standard > 0 && standard >= kLeastGramGain * gram;
}

}  // namespace

absl::optional<double> GramGain(const FormTimes& times, v1::NewtonSchulzDType dtype, uint64_t rows,
                                uint64_t cols) {
  if (rows == cols) return absl::nullopt;
  const FormTimes usable = UsableTimes(times, dtype);
  const auto distance = [&](const v1::NewtonSchulzFormTime& time) {
    return std::abs(LogAspect(time.rows(), time.cols()) - LogAspect(rows, cols));
  };
  const auto nearest =
      std::min_element(usable.begin(), usable.end(),
                       [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  if (nearest == usable.end()) return absl::nullopt;
  double standard = 0;
  double gram = 0;
  for (const v1::NewtonSchulzFormTime& time : usable) {
    if (time.rows() != nearest->rows() || time.cols() != nearest->cols()) continue;
    standard += time.standard_seconds();
    gram += time.gram_seconds();
  }
  return standard / gram;
}

std::vector<uint32_t> ChosenRestarts(uint32_t ns_steps) {
  if (ns_steps == 5) return {2, 3};
  return DefaultGramRestarts(ns_steps);
}

absl::Status ChooseForms(const FormTimes& times, absl::Span<const int> groups,
                         v1::RegisterBody& registration) {
  for (const int index : groups) {
    v1::ParameterGroup& group = *registration.mutable_definition()->mutable_groups(index);
    const v1::NewtonSchulzDType dtype = group.muon().ns_dtype();
    if (UsableTimes(times, dtype).empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "group ", group.name(), ": muon.newton_schulz.form is fastest, and no shard measured ",
          "both forms in ", NameOf(dtype), " when it started (kaon-shard --measure-forms)"));
    }
    KAON_ASSIGN_OR_RETURN(const bool is_gram, IsGramFaster(times, group, registration));
    v1::NewtonSchulzOptions& options = *group.mutable_muon()->mutable_newton_schulz();
    options.set_form(is_gram ? v1::NEWTON_SCHULZ_FORM_GRAM : v1::NEWTON_SCHULZ_FORM_STANDARD);
    options.clear_gram_restarts();
    if (!is_gram) continue;
    for (const uint32_t at : ChosenRestarts(group.muon().ns_steps())) options.add_gram_restarts(at);
  }
  return absl::OkStatus();
}

}  // namespace kaon::job
