// Matrix layouts by naive lists of element indices ([L1]-[L6]) and the scale of each block ([S1]),
// from the text of numerics.md and from nothing of kernels/ but its configuration structs. Pure
// functions; any thread.
#ifndef KAON_TESTS_CONFORMANCE_FLOAT64_BLOCKS_H_
#define KAON_TESTS_CONFORMANCE_FLOAT64_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "kernels/optimizer_rule.h"
#include "tests/kernels/reference/float64_optimizer.h"

namespace kaon::conformance {

// One matrix of a parameter: elements[i][j] is where entry (i, j) lies.
struct Block {
  std::vector<std::vector<size_t>> elements;

  reference::Matrix Cut(const std::vector<double>& from) const;
  void Join(const reference::Matrix& x, std::vector<double>& to) const;
};

// `shape` fits the layout.
std::vector<Block> BlocksOf(const kernels::MatrixLayout& layout,
                            const std::vector<uint64_t>& shape);

double ScaleOf(const kernels::MuonConfig& config, double rows, double cols);

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_FLOAT64_BLOCKS_H_
