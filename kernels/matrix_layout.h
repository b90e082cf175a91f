// Matrices of a parameter for an orthogonalizing rule (numerics.md, rules [L1]-[L6]): how the
// parameter is divided into blocks that are stepped separately. Plain values and pure functions;
// any thread.
#ifndef KAON_KERNELS_MATRIX_LAYOUT_H_
#define KAON_KERNELS_MATRIX_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace kaon::kernels {

// Same values as MatrixLayoutKind of the wire.
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
  // Each matrix is stored as (fan_in, fan_out): the scale swaps its arguments (rule [L1]).
  bool transposed = false;
  // Rows (kSplitCols: columns) of the blocks. kBatched: row counts of the blocks of each matrix, or
  // empty.
  std::vector<uint64_t> sizes;
  // Set with kHeads only.
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

// Maximum number of runs over all blocks of one parameter; a layout with more is rejected as a
// mistake.
inline constexpr uint64_t kMostRowRuns = uint64_t{1} << 20;

// Returns OK if `shape` can be divided so. INVALID_ARGUMENT names the field and shows the
// arithmetic. It means a wrong number of dimensions, sizes that do not add up or divide, or a field
// that the kind does not use.
absl::Status CheckLayout(const MatrixLayout& layout, absl::Span<const uint64_t> shape);

// Returns the number of runs over all blocks of a layout that CheckLayout accepts.
uint64_t NumRowRuns(const MatrixLayout& layout, absl::Span<const uint64_t> shape);

// Equal blocks of one parameter.
struct MatrixCount {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t count = 0;
};

// Counts the blocks of MatrixBlocks by their extents, in order of first appearance. Returns the
// errors of CheckLayout.
absl::StatusOr<std::vector<MatrixCount>> CountMatrices(const MatrixLayout& layout,
                                                       absl::Span<const uint64_t> shape);

// Returns the blocks. Every element of the parameter is in exactly one. They follow the order of
// `sizes` within each matrix, and matrices and heads follow memory order. Returns the errors of
// CheckLayout.
absl::StatusOr<std::vector<MatrixBlock>> MatrixBlocks(const MatrixLayout& layout,
                                                      absl::Span<const uint64_t> shape);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_MATRIX_LAYOUT_H_
