// Declarations of Muon as a rule, and the scale of a matrix's update. Each backend composes the
// step itself from muon_elements.h and the Newton-Schulz iteration. Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_MUON_H_
#define KAON_KERNELS_RULES_MUON_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/mutation.h"
#include "kernels/optimizer_rule.h"
#include "kernels/orthogonalize/newton_schulz_validation.h"

namespace kaon::kernels {

struct Muon {
  using Config = MuonConfig;

  static constexpr const char* kName = "muon";
  static constexpr const char* kSlots[] = {"momentum_buffer"};
  // True: the normalisation [N5] removes the gradient's scale. So Muon is exempt from clipping by
  // default ([C7]).
  static constexpr bool kScaleInvariant = true;

  static int NumSlots(const MuonConfig&) { return 1; }

  // Returns the operations for one matrix (r, c), r <= c (formulas [N1], [N4] and [N7]). The
  // multiply-adds of one step are 2 r r c for Gram and product with X, and r r r for the square.
  // The Gram form computes the products with c once per start. Each of its steps has four of r r r;
  // the first step of a start has one less, and the last step two less.
  static double NewtonSchulzFlops(const MuonConfig& config, uint64_t rows, uint64_t cols) {
    const double r = static_cast<double>(std::min(rows, cols));
    const double c = static_cast<double>(std::max(rows, cols));
    const double steps = config.newton_schulz.steps;
    if (config.newton_schulz.form == NsForm::kGram && c > r) {
      const double starts = 1.0 + static_cast<double>(config.newton_schulz.gram_restarts.size());
      return starts * (4.0 * r * r * c) + (4 * steps - 3 * starts) * (2.0 * r * r * r);
    }
    return steps * (4.0 * r * r * c + 2.0 * r * r * r);
  }

  // Returns the scale of table [S1] for (fan_out, fan_in); a transposed matrix swaps its arguments
  // (rule [L1]).
  static double UpdateScaleOf(const MuonConfig& config, uint64_t rows, uint64_t cols) {
    const bool swaps = config.layout.transposed != Mutated(Mutation::kScaleArgumentsSwapped);
    const double out = static_cast<double>(swaps ? cols : rows);
    const double in = static_cast<double>(swaps ? rows : cols);
    return config.scale_extra * ScaleByFans(config.scale, out, in);
  }

  // Calls visit.Fraction, visit.Positive or visit.NonNegative for each hyper-parameter, according
  // to its range. Calls visit.Part with the status of a group of hyper-parameters.
  template <typename Visitor>
  static void VisitRanges(const MuonConfig& config, Visitor& visit) {
    visit.Fraction("momentum", config.momentum);
    visit.Part(ValidateNewtonSchulz(config.newton_schulz));
    visit.Positive("scale_extra", config.scale_extra);
    visit.NonNegative("weight_decay", config.weight_decay);
  }

 private:
  static double ScaleByFans(UpdateScale scale, double out, double in) {
    switch (scale) {
      case UpdateScale::kOriginal:
        return std::sqrt(std::max(1.0, out / in));
      case UpdateScale::kMatchRmsAdamW:
        return 0.2 * std::sqrt(std::max(out, in));
      case UpdateScale::kMaxDim:
        return std::sqrt(std::max(out, in));
      case UpdateScale::kUnitRmsNorm:
        return std::sqrt(out / in);
      case UpdateScale::kNone:
        break;
    }
    return 1;
  }
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_MUON_H_
