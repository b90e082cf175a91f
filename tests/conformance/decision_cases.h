// Rows of the numerics table about the decision of one step: norms, clip factors, exemptions and
// skips ([C1]-[C8], [T3]-[T5], [T7], [T8]). The backend sums the gradients, job/decide.h decides,
// and a float64 reference checks both. Outcomes must be equal; norms and factors may differ by a
// few units of float64. Pure functions; any thread.
#ifndef KAON_TESTS_CONFORMANCE_DECISION_CASES_H_
#define KAON_TESTS_CONFORMANCE_DECISION_CASES_H_

#include <vector>

#include "tests/conformance/numerics_case.h"

namespace kaon::conformance {

std::vector<NumericsCase> DecisionCases();

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_DECISION_CASES_H_
