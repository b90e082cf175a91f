// What counts as one matrix for an orthogonalizing rule ([L1]-[L6]): how a parameter is cut into
// blocks that are stepped each by itself. Plain values and pure functions; any thread.
#ifndef KAON_KERNELS_MATRIX_LAYOUT_H_
#define KAON_KERNELS_MATRIX_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace kaon::kernels {

// As MatrixLayoutKind of the wire has them.
enum class MatrixLayoutKind {
  kMatrix,
  kBatched,
  kConvFlatten,
  kSplitRows,
  kQkvInterleaved,
  kHeads,
  kSplitCols
};

struct MatrixLayout {
  MatrixLayoutKind kind = MatrixLayoutKind::kMatrix;
  // Each matrix is stored as (fan_in, fan_out): the scale swaps its arguments ([L1]).
  bool transposed = false;
  // Rows (kSplitCols: columns) of the blocks; kBatched: row cuts of each matrix, or empty.
  std::vector<uint64_t> sizes;
  // kHeads only.
  uint64_t num_heads = 0;
};

// Consecutive rows of a block in the parameter's memory.
struct RowRun {
  // Element at which the first row starts.
  int64_t offset = 0;
  int64_t num_rows = 0;
};

// One matrix: `rows` x `cols` elements in `runs`, in row order, rows `row_stride` elements apart.
struct MatrixBlock {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  std::vector<RowRun> runs;
};

// Runs of all blocks of one parameter together; more is taken for a mistake.
inline constexpr uint64_t kMostRowRuns = uint64_t{1} << 20;

// OK if `shape` can be cut so. INVALID_ARGUMENT naming the field, with the arithmetic, when the
// shape has another number of dimensions, sizes do not add up or divide, or a field is given that
// the kind does not take.
absl::Status CheckLayout(const MatrixLayout& layout, absl::Span<const uint64_t> shape);

// Runs of all blocks of a layout that CheckLayout accepts.
uint64_t NumRowRuns(const MatrixLayout& layout, absl::Span<const uint64_t> shape);

// Equal blocks of one parameter.
struct MatrixCount {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t count = 0;
};

// Counts the blocks of MatrixBlocks by their extents, in order of first appearance. Errors are
// those of CheckLayout.
absl::StatusOr<std::vector<MatrixCount>> CountMatrices(const MatrixLayout& layout,
                                                       absl::Span<const uint64_t> shape);

// Every element of the parameter is in exactly one block. In the order of `sizes` within each
// matrix, matrices and heads in memory order. Errors are those of CheckLayout.
absl::StatusOr<std::vector<MatrixBlock>> MatrixBlocks(const MatrixLayout& layout,
                                                      absl::Span<const uint64_t> shape);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_MATRIX_LAYOUT_H_
