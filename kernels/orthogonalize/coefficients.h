// The coefficient sets of the Newton-Schulz iteration ([N2]): one table row per set.
// Constant tables; any thread.
#ifndef KAON_KERNELS_ORTHOGONALIZE_COEFFICIENTS_H_
#define KAON_KERNELS_ORTHOGONALIZE_COEFFICIENTS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/optimizer_rule.h"

namespace kaon::kernels {

struct NewtonSchulzCoefficientSet {
  NsCoefficients id;
  absl::string_view name;
  // More steps than triples repeat the last ([N3]).
  absl::Span<const NewtonSchulzTriple> triples;
};

// Every set there is.
absl::Span<const NewtonSchulzCoefficientSet> NewtonSchulzCoefficientSets();

// The triple of `step`, from 0.
NewtonSchulzTriple NewtonSchulzCoefficients(NsCoefficients set, int step);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_COEFFICIENTS_H_
