// The numerics table's rows of Muon: every pair of layout, shape, coefficients, form, dtypes, norm
// mode, momentum, scale, decay and input ([N], [L], [M], [S1], [W1], [Q1]). Pure functions; any
// thread.
#ifndef KAON_TESTS_CONFORMANCE_MUON_CASES_H_
#define KAON_TESTS_CONFORMANCE_MUON_CASES_H_

#include <vector>

#include "tests/conformance/numerics_case.h"

namespace kaon::conformance {

std::vector<NumericsCase> MuonCases();

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_MUON_CASES_H_
