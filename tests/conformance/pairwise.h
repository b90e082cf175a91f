// Rows of a test table that contain every pair of values of any two dimensions. Pure functions; any
// thread.
#ifndef KAON_TESTS_CONFORMANCE_PAIRWISE_H_
#define KAON_TESTS_CONFORMANCE_PAIRWISE_H_

#include <functional>
#include <vector>

namespace kaon::conformance {

// One value per dimension; dimension d has the values 0 .. sizes[d] - 1.
using Row = std::vector<int>;

// Whether a row may be in the table; a value of -1 is one not chosen yet and must be taken as
// harmless.
using RowFilter = std::function<bool(const Row&)>;

// Rows that pass the filter and together contain every pair that some row passing it can have; the
// same ones at every call. Greedy: about as many as the product of the two largest sizes.
std::vector<Row> CoverPairs(const std::vector<int>& sizes, const RowFilter& allowed);

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_PAIRWISE_H_
