// The numerics table compares a backend with an independent float64 implementation within the
// tolerances of [N9] in numerics.md. It has one row per combination of rule, layout, scale,
// coefficient set, dtype, momentum dtype and so on. Other rows compare the outcome of decide() on
// the backend's norms. Run by tests and, on the user's machine, by `kaonctl verify-numerics` (ADR
// 0014).
//
// The rows contain every pair of values of any two dimensions of a rule, if both are allowed
// together (pairwise.h). The full product would be millions of rows. More rows cover the rest:
// matrices of one row or column, other numbers of steps, folding, means, norms and clipping. Each
// row of Muon has two measurements: the weights and the momentum buffer. In half precision it has a
// third one: the weights against a float64 that rounds where the implementation rounds. Plain
// values; any thread, as far as the backend allows.
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

// Returns every row, always in the same order.
std::vector<NumericsCase> NumericsCases();

NumericsResult Run(const NumericsCase& numerics_case, kernels::Backend& backend);

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_NUMERICS_TABLE_H_
