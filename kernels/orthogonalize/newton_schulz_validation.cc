#include "kernels/orthogonalize/newton_schulz_validation.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/orthogonalize/coefficients.h"

namespace kaon::kernels {
namespace {

constexpr int kMaxSteps = kMaxNewtonSchulzSteps;
constexpr size_t kMaxTriples = kMaxNewtonSchulzSteps;
// Limit above the largest value that any set reaches (2). Beyond it the iteration runs away, in
// fp16 first.
constexpr double kMaxSingularValue = 10;
// Maximum number of consecutive steps on the Gram matrix, as measured (rule [N7]). After more steps
// its small eigenvalues are rounding errors, which the next step enlarges.
constexpr int kMaxStretchInFloat32 = 4;
constexpr int kMaxStretchInHalf = 2;

template <typename... Words>
absl::Status Refused(const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(words...));
}

// Returns the largest relative error of one rounding.
double UnitRoundoff(NsDType dtype) {
  switch (dtype) {
    case NsDType::kFloat32:
      return 0x1p-24;
    case NsDType::kBFloat16:
      return 0x1p-8;
    case NsDType::kFloat16:
      break;
  }
  return 0x1p-11;
}

absl::string_view NameOf(NsDType dtype) {
  switch (dtype) {
    case NsDType::kFloat32:
      return "float32";
    case NsDType::kBFloat16:
      return "bfloat16";
    case NsDType::kFloat16:
      break;
  }
  return "float16";
}

// The polynomial a s + b s^3 + c2 s^5.
struct Polynomial {
  double a;
  double b;
  double c2;

  double At(double s) const {
    const double u = s * s;
    return s * (a + u * (b + u * c2));
  }
};

// Returns the polynomial of one step whose A has the relative error `a_error`, and B `b_error`.
Polynomial Rounded(const Polynomial& p, double a_error, double b_error) {
  const double a = 1 + a_error;
  const double b = 1 + b_error;
  return {p.a, p.b * b * a, p.c2 * b * a * a};
}

// Returns the real roots of p0 + p1 u + p2 u^2 in (0, end].
std::vector<double> RootsWithin(double p0, double p1, double p2, double end) {
  std::vector<double> roots;
  if (p2 == 0) {
    if (p1 != 0) roots = {-p0 / p1};
  } else if (const double discriminant = p1 * p1 - 4 * p2 * p0; discriminant >= 0) {
    // Computes the sum that does not cancel; the other root follows from the product of both.
    const double q = -0.5 * (p1 + std::copysign(std::sqrt(discriminant), p1));
    roots = {q / p2};
    if (q != 0) roots.push_back(p0 / q);
  }
  const auto outside = [end](double u) { return !(u > 0 && u <= end); };
  roots.erase(std::remove_if(roots.begin(), roots.end(), outside), roots.end());
  return roots;
}

// Returns the smallest s in (0, end] that one step may map to 0 or below. A and B may have a
// relative error of up to `roundoff`. None if every s stays above 0.
absl::optional<double> SmallestNotPositive(const Polynomial& p, double roundoff, double end) {
  std::vector<double> zeros;
  for (const double a_error : {-roundoff, roundoff}) {
    // Where B reduces a singular value, a larger B reduces it more.
    const Polynomial rounded = Rounded(p, a_error, roundoff);
    const std::vector<double> found = RootsWithin(rounded.a, rounded.b, rounded.c2, end * end);
    zeros.insert(zeros.end(), found.begin(), found.end());
  }
  if (zeros.empty()) return absl::nullopt;
  return std::sqrt(*std::min_element(zeros.begin(), zeros.end()));
}

// Returns the s in (0, end] at which the step is largest.
double PeakOf(const Polynomial& p, double end) {
  double peak = end;
  for (const double u : RootsWithin(p.a, 3 * p.b, 5 * p.c2, end * end)) {
    if (p.At(std::sqrt(u)) > p.At(peak)) peak = std::sqrt(u);
  }
  return peak;
}

// One step with the roundings that raise some singular value most, and that singular value.
struct Step {
  Polynomial polynomial;
  double peak;
};

Step HighestStep(const Polynomial& p, double roundoff, double end) {
  Step highest{p, PeakOf(p, end)};
  for (const double a_error : {-roundoff, roundoff}) {
    for (const double b_error : {-roundoff, roundoff}) {
      const Polynomial rounded = Rounded(p, a_error, b_error);
      const double peak = PeakOf(rounded, end);
      if (rounded.At(peak) > highest.polynomial.At(highest.peak)) highest = {rounded, peak};
    }
  }
  return highest;
}

// Returns an input that the steps map to about `value`, which the last step must reach.
double InputThatReaches(absl::Span<const Step> steps, double value) {
  for (auto it = steps.rbegin(); it != steps.rend(); ++it) {
    double low = 0;
    double high = it->peak;
    for (int i = 0; i < 100; ++i) {
      const double middle = 0.5 * (low + high);
      (it->polynomial.At(middle) < value ? low : high) = middle;
    }
    value = high;
  }
  return value;
}

// Relative error allowed for the norm of the input and for each product of X X^T; [N9] allows a
// tenth of it. A set must not run away from values that are above 1 by as much.
constexpr double kSumError = 1e-4;

// Returns the largest singular value that the first step may find.
double StartOf(const NewtonSchulzCoefficientSet& set, double roundoff) {
  return (1 + std::max(roundoff, kSumError)) / set.safety_factor;
}

// Returns the largest value that a step leaves.
double EndOf(const Step& step, double roundoff) {
  return (1 + roundoff) * step.polynomial.At(step.peak);
}

Polynomial PolynomialOf(const NewtonSchulzCoefficientSet& set, int step) {
  const NewtonSchulzTriple t = TripleOfStep(set, step);
  return {t.a, t.b, t.c2};
}

// An exact check, where a grid would miss a narrow dip. If every step is positive on the range that
// the steps before it make of (0, 1], that range is (0, end] for some end. So one end per step is
// enough.
absl::Status CheckGoesDownhill(const NewtonSchulzCoefficientSet& set,
                               const NewtonSchulzConfig& config) {
  const double roundoff = UnitRoundoff(config.dtype);
  const bool is_custom = set.id == NsCoefficients::kCustom;
  const absl::string_view field = is_custom ? "newton_schulz.custom" : "ns_coefficients";
  // Named sets were measured (table [N2]). polar_express ends its first step just short of the
  // value from which its later steps run away. It loses nothing in bf16, although the worst of all
  // roundings together would.
  const double product_roundoff = is_custom ? roundoff : 0;
  std::vector<Step> before;
  double end = StartOf(set, roundoff);
  for (int step = 0; step < config.steps; ++step) {
    const Polynomial p = PolynomialOf(set, step);
    const absl::optional<double> low = SmallestNotPositive(p, roundoff, end);
    if (low) {
      return Refused(field, ": is ", set.name, " with ns_dtype ", NameOf(config.dtype), ", step ",
                     step + 1, " of ", config.steps, " takes singular value ",
                     set.safety_factor * InputThatReaches(before, *low),
                     " of the normalised input to 0 or below, must stay > 0 on (0, 1]");
    }
    before.push_back(HighestStep(p, product_roundoff, end));
    end = EndOf(before.back(), roundoff);
    if (!(end <= kMaxSingularValue)) {
      return Refused(field, ": is ", set.name, " with ns_dtype ", NameOf(config.dtype), ", step ",
                     step + 1, " of ", config.steps, " takes a singular value to ", end,
                     ", must stay <= ", kMaxSingularValue, " on (0, 1]");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCustom(const NewtonSchulzConfig& config) {
  if (config.coefficients != NsCoefficients::kCustom) {
    if (config.custom.empty()) return absl::OkStatus();
    return Refused("newton_schulz.custom: has ", config.custom.size(),
                   " triples, must be empty unless ns_coefficients is custom");
  }
  if (config.custom.empty() || config.custom.size() > kMaxTriples) {
    return Refused("newton_schulz.custom: has ", config.custom.size(), " triples, must be 1 .. ",
                   kMaxTriples);
  }
  for (size_t i = 0; i < config.custom.size(); ++i) {
    const NewtonSchulzTriple& t = config.custom[i];
    if (!std::isfinite(t.a) || t.a <= 0) {
      return Refused("newton_schulz.custom[", i, "].a: is ", t.a, ", must be finite and > 0");
    }
    if (!std::isfinite(t.b) || !std::isfinite(t.c2)) {
      return Refused("newton_schulz.custom[", i, "]: b is ", t.b, " and c2 is ", t.c2,
                     ", must be finite");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSteps(const NewtonSchulzCoefficientSet& set, int steps) {
  if (steps < 1 || steps > kMaxSteps) {
    return Refused("ns_steps: is ", steps, ", must be in [1, ", kMaxSteps, "]");
  }
  const int fixed = static_cast<int>(set.triples.size());
  if (set.repeat == NsRepeat::kFixed && steps != fixed) {
    return Refused("ns_steps: is ", steps, ", must be ", fixed, " with the coefficients ",
                   set.name);
  }
  return absl::OkStatus();
}

int LongestStretch(const NewtonSchulzConfig& config, int begin) {
  if (config.dtype == NsDType::kFloat32) return kMaxStretchInFloat32;
  // The usual 5 steps with one restart at 2: later steps enlarge less.
  if (config.steps == kMaxStepsWithOneRestart && begin == 2) return 3;
  return kMaxStretchInHalf;
}

absl::Status CheckGram(const NewtonSchulzConfig& config) {
  const std::vector<int>& restarts = config.gram_restarts;
  if (config.form != NsForm::kGram) {
    if (restarts.empty()) return absl::OkStatus();
    return Refused("newton_schulz.gram_restarts: has ", restarts.size(),
                   " entries, must be empty unless newton_schulz.form is gram");
  }
  if (config.steps > kMaxStepsWithOneRestart && restarts.size() < 2) {
    return Refused("newton_schulz.gram_restarts: has ", restarts.size(), " entries with ns_steps ",
                   config.steps, ", must be >= 2 above ", kMaxStepsWithOneRestart,
                   " steps (for example 2, 4, 6), or use the standard form");
  }
  int begin = 0;
  for (size_t i = 0; i <= restarts.size(); ++i) {
    const int end = i < restarts.size() ? restarts[i] : config.steps;
    if (end <= begin || (i < restarts.size() && end >= config.steps)) {
      return Refused("newton_schulz.gram_restarts[", i, "]: is ", end,
                     ", must be ascending and within 1 .. ns_steps - 1 = ", config.steps - 1);
    }
    const int longest = LongestStretch(config, begin);
    if (end - begin > longest) {
      return Refused("newton_schulz.gram_restarts: leaves ", end - begin, " steps after step ",
                     begin, " without a restart, must be <= ", longest, " with ns_dtype ",
                     NameOf(config.dtype));
    }
    begin = end;
  }
  return absl::OkStatus();
}

// A value that is no enumerator is from a program newer than this one.
template <typename Enum>
absl::Status CheckEnum(absl::string_view field, Enum value, Enum last) {
  const int number = static_cast<int>(value);
  if (number >= 0 && number <= static_cast<int>(last)) return absl::OkStatus();
  return Refused(field, ": is enumerator ", number, ", must be in [0, ", static_cast<int>(last),
                 "]");
}

absl::Status CheckEnums(const NewtonSchulzConfig& config) {
  absl::Status status = CheckEnum("ns_coefficients", config.coefficients, NsCoefficients::kCustom);
  status.Update(CheckEnum("newton_schulz.custom_repeat", config.custom_repeat, NsRepeat::kFixed));
  status.Update(CheckEnum("ns_dtype", config.dtype, NsDType::kFloat16));
  status.Update(CheckEnum("newton_schulz.norm_mode", config.norm_mode, NormMode::kClampEps));
  status.Update(CheckEnum("newton_schulz.form", config.form, NsForm::kGram));
  return status;
}

absl::Status CheckNormEps(const NewtonSchulzConfig& config) {
  if (config.norm_mode == NormMode::kScaleInvariant) return absl::OkStatus();
  if (std::isfinite(config.norm_eps) && config.norm_eps > 0) return absl::OkStatus();
  return Refused("newton_schulz.norm_eps: is ", config.norm_eps, ", must be finite and > 0");
}

}  // namespace

double MostSingularValue(const NewtonSchulzConfig& config) {
  const absl::optional<NewtonSchulzCoefficientSet> set = FindCoefficientSet(config);
  CHECK(set) << "coefficient set " << static_cast<int>(config.coefficients) << " has no row";
  const double roundoff = UnitRoundoff(config.dtype);
  double end = StartOf(*set, roundoff);
  for (int step = 0; step < config.steps; ++step) {
    end = EndOf(HighestStep(PolynomialOf(*set, step), 0, end), roundoff);
  }
  return end;
}

absl::Status ValidateNewtonSchulz(const NewtonSchulzConfig& config) {
  absl::Status status = CheckEnums(config);
  if (status.ok()) status = CheckCustom(config);
  if (!status.ok()) return status;
  const absl::optional<NewtonSchulzCoefficientSet> set = FindCoefficientSet(config);
  if (!set) return Refused("ns_coefficients: is none of the sets, must be one");
  status = CheckSteps(*set, config.steps);
  if (status.ok()) status = CheckGoesDownhill(*set, config);
  if (status.ok()) status = CheckNormEps(config);
  if (status.ok()) status = CheckGram(config);
  return status;
}

}  // namespace kaon::kernels
