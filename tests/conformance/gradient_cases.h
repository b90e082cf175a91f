// Rows of the numerics table about a gradient before any rule: folding, the mean, norms and clip
// factors ([T1], [T2], [C1], [C5]). Pure functions; any thread.
#ifndef KAON_TESTS_CONFORMANCE_GRADIENT_CASES_H_
#define KAON_TESTS_CONFORMANCE_GRADIENT_CASES_H_

#include <vector>

#include "tests/conformance/numerics_case.h"

namespace kaon::conformance {

std::vector<NumericsCase> GradientCases();

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_GRADIENT_CASES_H_
