// Rows of the numerics table about Muon ([N], [L], [M], [S1], [W1], [Q1]). They contain every pair
// of values of its options: layout, shape, coefficients, form, dtypes, norm mode, momentum, scale,
// decay and input. Pure functions; any thread.
#ifndef KAON_TESTS_CONFORMANCE_MUON_CASES_H_
#define KAON_TESTS_CONFORMANCE_MUON_CASES_H_

#include <vector>

#include "tests/conformance/numerics_case.h"

namespace kaon::conformance {

std::vector<NumericsCase> MuonCases();

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_MUON_CASES_H_
