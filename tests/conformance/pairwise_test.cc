#include "tests/conformance/pairwise.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kaon::conformance {
namespace {

bool Has(const std::vector<Row>& rows, int d, int x, int e, int y) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Row& row) { return row[d] == x && row[e] == y; });
}

TEST(PairwiseTest, CoversEveryPairThatIsAllowed) {
  const std::vector<int> sizes = {3, 2, 4, 5, 2};
  // The filter excludes value 0 of dimension 0 with value 1 of dimension 4.
  const std::vector<Row> rows =
      CoverPairs(sizes, [](const Row& row) { return !(row[0] == 0 && row[4] == 1); });
  for (int d = 0; d < 5; ++d) {
    for (int e = d + 1; e < 5; ++e) {
      for (int x = 0; x < sizes[d]; ++x) {
        for (int y = 0; y < sizes[e]; ++y) {
          const bool refused = d == 0 && x == 0 && e == 4 && y == 1;
          EXPECT_EQ(Has(rows, d, x, e, y), !refused) << d << "=" << x << " " << e << "=" << y;
        }
      }
    }
  }
  EXPECT_LE(rows.size(), 30);
}

TEST(PairwiseTest, HasWholeRowsOnly) {
  for (const Row& row : CoverPairs({2, 3, 2}, [](const Row&) { return true; })) {
    EXPECT_EQ(std::count(row.begin(), row.end(), -1), 0);
  }
}

}  // namespace
}  // namespace kaon::conformance
