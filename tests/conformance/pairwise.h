// Rows of a test table that contain every pair of values of any two dimensions. Pure functions; any
// thread.
#ifndef KAON_TESTS_CONFORMANCE_PAIRWISE_H_
#define KAON_TESTS_CONFORMANCE_PAIRWISE_H_

#include <functional>
#include <vector>

namespace kaon::conformance {

// One value per dimension; dimension d has the values 0 .. sizes[d] - 1.
using Row = std::vector<int>;

// Returns true if a row may be in the table. A value of -1 is not chosen yet; the filter must
// accept it.
using RowFilter = std::function<bool(const Row&)>;

// Returns rows that pass the filter and together contain every pair that some row passing it can
// have. Every call returns the same rows. The search is greedy and finds about as many rows as the
// product of the two largest sizes.
std::vector<Row> CoverPairs(const std::vector<int>& sizes, const RowFilter& allowed);

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_PAIRWISE_H_
