// Rows of the numerics table about the element-wise rules: Adam, SGD and Lion with every pair of
// their options ([A], [G], [W1], [Q1]). Pure functions; any thread.
#ifndef KAON_TESTS_CONFORMANCE_ELEMENT_WISE_CASES_H_
#define KAON_TESTS_CONFORMANCE_ELEMENT_WISE_CASES_H_

#include <vector>

#include "tests/conformance/numerics_case.h"

namespace kaon::conformance {

std::vector<NumericsCase> ElementWiseCases();

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_ELEMENT_WISE_CASES_H_
