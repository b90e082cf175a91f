// The numerics table's rows of what is decided on one step: norms, clip factors, exemptions, skips
// ([C1]-[C8], [T3]-[T5], [T7], [T8]), from gradients by the backend's sums and job/decide.h, beside
// the float64 reference. Outcomes must be equal, norms and factors within a few units of float64.
// Pure functions; any thread.
#ifndef KAON_TESTS_CONFORMANCE_DECISION_CASES_H_
#define KAON_TESTS_CONFORMANCE_DECISION_CASES_H_

#include <vector>

#include "tests/conformance/numerics_case.h"

namespace kaon::conformance {

std::vector<NumericsCase> DecisionCases();

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_DECISION_CASES_H_
