#include "job/form_choice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
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

// An update takes milliseconds. What is no measurement, whoever sent it, is none.
constexpr double kMaxSeconds = 3600;

bool IsUsable(const v1::NewtonSchulzFormTime& time) {
  const auto is_time = [](double seconds) { return seconds > 0 && seconds <= kMaxSeconds; };
  return time.rows() > 0 && time.cols() > 0 && is_time(time.standard_seconds()) &&
         is_time(time.gram_seconds());
}

// Multiply-adds of a step in standard form, by which matrices of one group weigh.
double WorkOf(const kernels::MatrixCount& matrices) {
  const double r = static_cast<double>(std::min(matrices.rows, matrices.cols));
  const double c = static_cast<double>(std::max(matrices.rows, matrices.cols));
  return static_cast<double>(matrices.count) * r * r * (2 * c + r);
}

// A group whose form is to be chosen, and how long a step of its matrices takes in either.
struct Candidate {
  Candidate(int index, GramGains gains) : index(index), gains(std::move(gains)) {}

  // The matrices of one parameter of the group.
  void Add(absl::Span<const kernels::MatrixCount> counts) {
    for (const kernels::MatrixCount& matrices : counts) {
      has_choice = has_choice || matrices.rows != matrices.cols;
      const absl::optional<double> gain =
          gains.Of(static_cast<uint64_t>(matrices.rows), static_cast<uint64_t>(matrices.cols));
      if (!gain.has_value()) continue;
      standard += WorkOf(matrices);
      gram += WorkOf(matrices) / *gain;
    }
  }
  bool IsGramFaster() const { return standard > 0 && standard >= kLeastGramGain * gram; }

  int index = 0;
  GramGains gains;
  // Not all matrices are squares.
  bool has_choice = false;
  double standard = 0;
  double gram = 0;
};

using Candidates = absl::flat_hash_map<std::string, Candidate>;

Candidates CandidatesOf(const FormTimes& times, absl::Span<const int> groups,
                        const v1::JobDefinition& job) {
  Candidates candidates;
  for (const int index : groups) {
    const v1::ParameterGroup& group = job.groups(index);
    candidates.emplace(group.name(), Candidate(index, GramGains(times, group.muon().ns_dtype())));
  }
  return candidates;
}

absl::Status AddMatrices(const v1::RegisterBody& registration, Candidates& candidates) {
  const v1::JobDefinition& job = registration.definition();
  for (int id = 0; id < job.parameters_size(); ++id) {
    const v1::ParameterPlacement& placement = registration.placement().parameters(id);
    const auto candidate = candidates.find(placement.group());
    if (candidate == candidates.end()) continue;
    const v1::ParameterSpec& parameter = job.parameters(id);
    const kernels::RuleConfig rule =
        RuleConfigOf(job.groups(candidate->second.index), parameter, placement);
    const std::vector<uint64_t> shape(parameter.shape().begin(), parameter.shape().end());
    KAON_ASSIGN_OR_RETURN(
        const std::vector<kernels::MatrixCount> counts,
        kernels::CountMatrices(std::get<kernels::MuonConfig>(rule).layout, shape));
    candidate->second.Add(counts);
  }
  return absl::OkStatus();
}

}  // namespace

GramGains::GramGains(const FormTimes& times, v1::NewtonSchulzDType dtype) {
  struct Seconds {
    double standard = 0;
    double gram = 0;
  };
  std::map<std::pair<uint64_t, uint64_t>, Seconds> shapes;
  for (const v1::NewtonSchulzFormTime& time : times) {
    if (time.dtype() != dtype || !IsUsable(time)) continue;
    Seconds& seconds = shapes[{time.rows(), time.cols()}];
    seconds.standard += time.standard_seconds();
    seconds.gram += time.gram_seconds();
  }
  for (const auto& [sides, seconds] : shapes) {
    gains_.push_back({LogAspect(sides.first, sides.second), seconds.standard / seconds.gram});
  }
}

absl::optional<double> GramGains::Of(uint64_t rows, uint64_t cols) const {
  if (rows == cols || empty()) return absl::nullopt;
  const double wanted = LogAspect(rows, cols);
  return std::min_element(gains_.begin(), gains_.end(),
                          [wanted](const Gain& a, const Gain& b) {
                            return std::abs(a.log_aspect - wanted) <
                                   std::abs(b.log_aspect - wanted);
                          })
      ->gain;
}

std::vector<uint32_t> ChosenRestarts(uint32_t ns_steps) {
  if (ns_steps == 5) return {2, 3};
  return DefaultGramRestarts(ns_steps);
}

absl::Status ChooseForms(const FormTimes& times, absl::Span<const int> groups,
                         v1::RegisterBody& registration) {
  v1::JobDefinition& job = *registration.mutable_definition();
  Candidates candidates = CandidatesOf(times, groups, job);
  KAON_RETURN_IF_ERROR(AddMatrices(registration, candidates));
  for (const int index : groups) {
    const Candidate& candidate = candidates.at(job.groups(index).name());
    v1::MuonOptions& muon = *job.mutable_groups(index)->mutable_muon();
    if (candidate.has_choice && candidate.gains.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "group ", job.groups(index).name(), ": muon.newton_schulz.form is fastest, and no shard ",
          "measured both forms in ", NameOf(muon.ns_dtype()), " when it started: each had ",
          "--measure-forms=false or --gemm reference, or is too slow; standard and gram need no ",
          "measurement"));
    }
    v1::NewtonSchulzOptions& options = *muon.mutable_newton_schulz();
    options.set_form(v1::NEWTON_SCHULZ_FORM_STANDARD);
    options.clear_gram_restarts();
    if (!candidate.IsGramFaster()) continue;
    options.set_form(v1::NEWTON_SCHULZ_FORM_GRAM);
    for (const uint32_t at : ChosenRestarts(muon.ns_steps())) options.add_gram_restarts(at);
  }
  return absl::OkStatus();
}

}  // namespace kaon::job
