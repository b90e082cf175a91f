#include "tests/conformance/pairwise.h"

#include <array>
#include <cstddef>
#include <set>
#include <utility>

namespace kaon::conformance {
namespace {

// Dimension and value, twice.
using Pair = std::array<int, 4>;

std::set<Pair> AllPairs(const std::vector<int>& sizes) {
  std::set<Pair> pairs;
  const int dimensions = static_cast<int>(sizes.size());
  for (int d = 0; d < dimensions; ++d) {
    for (int e = d + 1; e < dimensions; ++e) {
      for (int x = 0; x < sizes[d]; ++x) {
        for (int y = 0; y < sizes[e]; ++y) pairs.insert({d, x, e, y});
      }
    }
  }
  return pairs;
}

// Returns the number of new pairs of dimension d's value with the values already in the row.
int CountNew(const Row& row, int d, int value, const std::set<Pair>& open) {
  int count = 0;
  for (int e = 0; e < static_cast<int>(row.size()); ++e) {
    if (row[e] < 0 || e == d) continue;
    count += open.count(e < d ? Pair{e, row[e], d, value} : Pair{d, value, e, row[e]});
  }
  return count;
}

// Chooses the value with most new pairs for each open dimension, and backtracks to the next best if
// none is allowed. `turn` is the start of the search among equals.
bool Complete(const std::vector<int>& sizes, const RowFilter& allowed, const std::set<Pair>& open,
              size_t turn, Row& row) {
  int d = 0;
  while (d < static_cast<int>(row.size()) && row[d] >= 0) ++d;
  if (d == static_cast<int>(row.size())) return true;
  std::set<std::pair<int, int>> ranked;
  for (int i = 0; i < sizes[d]; ++i) {
    const int value = static_cast<int>((i + turn) % sizes[d]);
    ranked.insert({-CountNew(row, d, value, open) * sizes[d] + i, value});
  }
  for (const auto& [rank, value] : ranked) {
    row[d] = value;
    if (allowed(row) && Complete(sizes, allowed, open, turn, row)) return true;
  }
  row[d] = -1;
  return false;
}

}  // namespace

std::vector<Row> CoverPairs(const std::vector<int>& sizes, const RowFilter& allowed) {
  std::set<Pair> open = AllPairs(sizes);
  std::vector<Row> rows;
  while (!open.empty()) {
    const Pair first = *open.begin();
    Row row(sizes.size(), -1);
    row[first[0]] = first[1];
    row[first[2]] = first[3];
    // A pair that no row can have is no loss.
    open.erase(open.begin());
    if (!allowed(row) || !Complete(sizes, allowed, open, rows.size(), row)) continue;
    for (size_t d = 0; d < row.size(); ++d) {
      for (size_t e = d + 1; e < row.size(); ++e) {
        open.erase({static_cast<int>(d), row[d], static_cast<int>(e), row[e]});
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace kaon::conformance
