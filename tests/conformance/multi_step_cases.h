// The numerics table's rows of what job/ carries from step to step: the dynamic loss scale ([T2b])
// and the learning rates of schedules, of each kind and length, which skipped steps do not advance
// (edges 20 and 52); beside the float64 reference. Pure functions; any thread.
#ifndef KAON_TESTS_CONFORMANCE_MULTI_STEP_CASES_H_
#define KAON_TESTS_CONFORMANCE_MULTI_STEP_CASES_H_

#include <vector>

#include "tests/conformance/numerics_case.h"

namespace kaon::conformance {

std::vector<NumericsCase> MultiStepCases();

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_MULTI_STEP_CASES_H_
