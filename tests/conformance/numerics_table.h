// The numerics table: what a backend computes beside an independent float64 implementation, one row
// per combination of rule, layout, scale, coefficient set, dtype, momentum dtype and so on, with
// the tolerances of numerics.md [N9]; and what decide() makes of the norms it took, beside the
// same. Run by tests and, on the user's machine, by `kaonctl verify-numerics` (ADR 0014).
//
// How rows are chosen: of each rule's dimensions, the rows contain every pair of values of any two
// (pairwise.h), where both are allowed together; the full product would be millions of rows. On top
// come rows for what is no dimension: matrices of one row or column, other numbers of steps,
// folding, means, norms and clipping. Muon's rows have two or three measurements each: the weights,
// the momentum buffer, and in half precision the weights again beside a float64 that rounds where
// the implementation rounds.
// Plain values; any thread, as far as the backend allows.
#ifndef KAON_TESTS_CONFORMANCE_NUMERICS_TABLE_H_
#define KAON_TESTS_CONFORMANCE_NUMERICS_TABLE_H_

#include <vector>

#include "kernels/backend.h"
#include "tests/conformance/numerics_case.h"

namespace kaon::conformance {

struct NumericsResult {
  NumericsCase numerics_case;
  double error = 0;
  bool passed = false;
  double seconds = 0;
};

// Every row, always the same ones in the same order.
std::vector<NumericsCase> NumericsCases();

NumericsResult Run(const NumericsCase& numerics_case, kernels::Backend& backend);

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_NUMERICS_TABLE_H_
