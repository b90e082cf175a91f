#include "kernels/optimizer_rule.h"

#include <charconv>
#include <cmath>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/rules/element_wise_rules.h"
#include "kernels/rules/muon.h"
#include "kernels/rules/type_list.h"
#include "kernels/state_codec.h"

namespace kaon::kernels {
namespace {

using AllRules = Prepend<Muon, ElementWiseRules>::type;
static_assert(AllRules::kSize == std::variant_size_v<RuleConfig>,
              "a configuration without a rule, or a rule without a configuration");

template <typename Config>
using RuleOf = typename FindRule<Config, AllRules>::type;

// Prints enough digits to read the same number back: six digits would print 0.99999999 as 1.
std::string Digits(double value) {
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
  return std::string(digits, end);
}

// Keeps the first range that a hyper-parameter violates.
class RangeChecker {
 public:
  explicit RangeChecker(absl::string_view rule) : rule_(rule) {}

  // Checks the value as the float that is used: 0.99999999 would be 1, a momentum whose sums never
  // decay.
  void Fraction(absl::string_view field, double value) {
    Check(value >= 0 && static_cast<float>(value) < 1, field, value, "in [0, 1) in fp32");
  }
  void AtMostOne(absl::string_view field, double value) {
    Check(value >= 0 && value <= 1, field, value, "in [0, 1]");
  }
  void Positive(absl::string_view field, double value) {
    Check(std::isfinite(value) && value > 0, field, value, "finite and > 0");
  }
  // Also checks the float that is used: an eps of 1e-50 would divide by 0.
  void PositiveFloat(absl::string_view field, double value) {
    const auto used = static_cast<float>(value);
    Check(std::isfinite(used) && used > 0, field, value, "finite and > 0 in fp32");
  }
  void NonNegative(absl::string_view field, double value) {
    Check(std::isfinite(static_cast<float>(value)) && value >= 0, field, value,
          "finite in fp32 and >= 0");
  }
  // Adds the status of several fields; its message begins with the first bad one.
  void Part(const absl::Status& status) {
    if (status.ok() || !status_.ok()) return;
    status_ = absl::Status(status.code(), absl::StrCat(rule_, ".", status.message()));
  }
  // Reports that `field` is set although `other` has not the value that it needs, unless `ok`.
  void Requires(absl::string_view field, bool ok, absl::string_view other, double value,
                absl::string_view needed) {
    if (ok || !status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(rule_, ".", field, ": is set, but ", other,
                                                      " is ", Digits(value), ", must be ", needed));
  }

  const absl::Status& status() const { return status_; }

 private:
  void Check(bool ok, absl::string_view field, double value, absl::string_view range) {
    if (ok || !status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat(rule_, ".", field, ": is ", Digits(value), ", must be ", range));
  }

  const absl::string_view rule_;
  absl::Status status_;
};

int64_t NumElements(absl::Span<const uint64_t> shape) {
  uint64_t n = 1;
  for (const uint64_t extent : shape) n *= extent;
  return static_cast<int64_t>(n);
}

// Measured on the development CPU (performance.md section 0): fp32 products run at 0.31 TFLOP/s
// while AdamW updates 1.9 G elements/s.
constexpr double kFlopsPerElementUpdate = 160;
// fp32 gradient, weight in, weight out, and each slot both ways; AdamW's 28 bytes are the unit.
constexpr double kBytesPerElementUpdate = 28;

double ElementWiseCost(const RuleConfig& rule, absl::Span<const uint64_t> shape) {
  int64_t bytes = 12 * NumElements(shape);
  for (const StateSlot& slot : StateSlots(rule, shape)) bytes += 2 * slot.num_bytes;
  return static_cast<double>(bytes) / kBytesPerElementUpdate;
}

absl::Status CheckShape(const MuonConfig& config, absl::Span<const uint64_t> shape) {
  return CheckLayout(config.layout, shape);
}

template <typename Config>
absl::Status CheckShape(const Config&, absl::Span<const uint64_t>) {
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateRule(const RuleConfig& rule, absl::Span<const uint64_t> shape) {
  return std::visit(
      [&](const auto& config) -> absl::Status {
        using Rule = RuleOf<std::decay_t<decltype(config)>>;
        RangeChecker checker(Rule::kName);
        Rule::VisitRanges(config, checker);
        if (!checker.status().ok()) return checker.status();
        return CheckShape(config, shape);
      },
      rule);
}

std::vector<StateSlot> StateSlots(const RuleConfig& rule, absl::Span<const uint64_t> shape) {
  return std::visit(
      [&](const auto& config) {
        using Rule = RuleOf<std::decay_t<decltype(config)>>;
        std::vector<StateSlot> slots;
        const int64_t n = NumElements(shape);
        for (int k = 0; k < Rule::NumSlots(config); ++k) {
          const StateDType dtype = SlotDType(config, k);
          slots.push_back({Rule::kSlots[k], dtype, n, StateBytes(dtype, n)});
        }
        return slots;
      },
      rule);
}

bool IsScaleInvariant(const RuleConfig& rule) {
  return std::visit(
      [](const auto& config) { return RuleOf<std::decay_t<decltype(config)>>::kScaleInvariant; },
      rule);
}

std::vector<ScaledMatrices> OrthogonalizedMatrices(const RuleConfig& rule,
                                                   absl::Span<const uint64_t> shape) {
  std::vector<ScaledMatrices> matrices;
  const MuonConfig* muon = std::get_if<MuonConfig>(&rule);
  if (muon == nullptr) return matrices;
  const absl::StatusOr<std::vector<MatrixCount>> counts = CountMatrices(muon->layout, shape);
  if (!counts.ok()) return matrices;
  for (const MatrixCount& matrix : *counts) {
    matrices.push_back({matrix.rows, matrix.cols, matrix.count,
                        Muon::UpdateScaleOf(*muon, matrix.rows, matrix.cols)});
  }
  return matrices;
}

const char* RuleName(const RuleConfig& rule) {
  return std::visit(
      [](const auto& config) { return RuleOf<std::decay_t<decltype(config)>>::kName; }, rule);
}

double UpdateCost(const RuleConfig& rule, absl::Span<const uint64_t> shape) {
  return std::visit(
      [&](const auto& config) {
        using Config = std::decay_t<decltype(config)>;
        double cost = ElementWiseCost(rule, shape);
        if constexpr (std::is_same_v<Config, MuonConfig>) {
          const auto matrices = CountMatrices(config.layout, shape);
          if (!matrices.ok()) return cost;
          for (const MatrixCount& matrix : *matrices) {
            cost += static_cast<double>(matrix.count) *
                    Muon::NewtonSchulzFlops(config, matrix.rows, matrix.cols) /
                    kFlopsPerElementUpdate;
          }
        }
        return cost;
      },
      rule);
}

}  // namespace kaon::kernels
