// The coefficient sets of the Newton-Schulz iteration (numerics.md, table [N2]): one row per set.
// `aol` is left out on purpose: normalised by the Frobenius norm it steps uphill (edge case 50).
// Constant tables; any thread.
#ifndef KAON_KERNELS_ORTHOGONALIZE_COEFFICIENTS_H_
#define KAON_KERNELS_ORTHOGONALIZE_COEFFICIENTS_H_

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/newton_schulz_config.h"

namespace kaon::kernels {

struct NewtonSchulzCoefficientSet {
  NsCoefficients id = NsCoefficients::kCustom;
  absl::string_view name;
  absl::Span<const NewtonSchulzTriple> triples;
  // Rule for steps after the last triple (rule [N3]).
  NsRepeat repeat = NsRepeat::kLast;
  // Multiplies the norm by which the input is divided (rule [N5]).
  double safety_factor = 1;
};

// Returns every set except `custom`, in the order of NsCoefficients.
absl::Span<const NewtonSchulzCoefficientSet> NewtonSchulzCoefficientSets();

// Returns the set that `config` names; `custom` borrows its triples from `config`. Nothing for a
// value that is no enumerator.
absl::optional<NewtonSchulzCoefficientSet> FindCoefficientSet(const NewtonSchulzConfig& config);

// Returns the triple of `step`, from 0; a set has at least one.
NewtonSchulzTriple TripleOfStep(const NewtonSchulzCoefficientSet& set, int step);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_COEFFICIENTS_H_
