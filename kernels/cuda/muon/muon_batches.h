// The matrices of a list of Muon updates, in batches of equal shape and configuration. Plain values
// and pure functions; any thread.
#ifndef KAON_KERNELS_CUDA_MUON_MUON_BATCHES_H_
#define KAON_KERNELS_CUDA_MUON_MUON_BATCHES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/muon/newton_schulz.h"
#include "kernels/matrix_layout.h"
#include "kernels/optimizer_rule.h"
#include "kernels/update.h"

namespace kaon::kernels::cuda {

// One matrix of an update.
struct BatchedMatrix {
  // Index of the update in its list.
  size_t update = 0;
  // Place among the update's blocks.
  size_t place = 0;
  MatrixBlock block;

  int64_t num_elements() const { return block.rows * block.cols; }
  bool is_contiguous() const { return block.row_stride == block.cols && block.runs.size() == 1; }
};

// Matrices (rows, cols), all by one configuration. Not empty.
struct MuonBatch {
  // Points into one of the rules.
  const NewtonSchulzConfig* config = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<BatchedMatrix> matrices;

  // Shape of the matrices that are iterated on.
  WideBatch wide() const {
    return {std::min(rows, cols), std::max(rows, cols), static_cast<int64_t>(matrices.size())};
  }
};

// Everything in a configuration that an iteration depends on, as a map's key.
std::string KeyOf(const NewtonSchulzConfig& config);

// Returns the matrices with elements of all updates, whose rule is Muon or null: none. Batches keep
// the order of the first matrix of their kind. Plans of a batch need at most `most_bytes`, unless
// one matrix needs more.
std::vector<MuonBatch> MuonBatches(absl::Span<const SizedUpdate> updates, uint64_t most_bytes);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_MUON_MUON_BATCHES_H_
