// Rows of the numerics table about the state that job/ carries from step to step, against the
// float64 reference. The rows cover the dynamic loss scale ([T2b]) and the learning rates of
// schedules of each kind and length. A skipped step does not advance a schedule (edges 20 and 52).
// Pure functions; any thread.
#ifndef KAON_TESTS_CONFORMANCE_MULTI_STEP_CASES_H_
#define KAON_TESTS_CONFORMANCE_MULTI_STEP_CASES_H_

#include <vector>

#include "tests/conformance/numerics_case.h"

namespace kaon::conformance {

std::vector<NumericsCase> MultiStepCases();

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_MULTI_STEP_CASES_H_
