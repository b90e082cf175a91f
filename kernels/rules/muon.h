// Muon as a rule: what it declares to its callers and the scale of a matrix's update. The step
// itself is a composite of muon_elements.h and the Newton-Schulz iteration, put together by each
// backend. Pure functions; any thread.
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
  // Normalisation [N5] divides the gradient's scale out: exempt from clipping by default ([C7]).
  static constexpr bool kScaleInvariant = true;

  static int NumSlots(const MuonConfig&) { return 1; }

  // Of one matrix. Multiply-adds of one step are 2 r r c (Gram and product with X) and r r r (the
  // square), r <= c ([N1], [N4]); in the Gram form those with c are of each start only, and of the
  // four r r r of a step its first has one less, its last two ([N7]).
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

  // [S1] on (fan_out, fan_in); a transposed matrix swaps its arguments ([L1]).
  static double UpdateScaleOf(const MuonConfig& config, uint64_t rows, uint64_t cols) {
    const bool swaps = config.layout.transposed != Mutated(Mutation::kScaleArgumentsSwapped);
    const double out = static_cast<double>(swaps ? cols : rows);
    const double in = static_cast<double>(swaps ? rows : cols);
    return config.scale_extra * ScaleByFans(config.scale, out, in);
  }

  // Calls visit.Fraction, visit.Positive or visit.NonNegative for each hyper-parameter, by its
  // range, and visit.Part with the status of a group of them.
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
