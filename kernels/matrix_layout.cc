#include "kernels/matrix_layout.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/mutation.h"

namespace kaon::kernels {
namespace {

// Fields that a kind of layout uses.
struct KindTraits {
  absl::string_view name;
  size_t fewest_dimensions;
  size_t most_dimensions;
  bool takes_sizes;
  bool takes_num_heads;
};

constexpr size_t kAny = std::numeric_limits<size_t>::max();

KindTraits TraitsOf(MatrixLayoutKind kind) {
  switch (kind) {
    case MatrixLayoutKind::kMatrix:
      return {"matrix", 2, 2, false, false};
    case MatrixLayoutKind::kBatched:
      return {"batched", 3, kAny, true, false};
    case MatrixLayoutKind::kConvFlatten:
      return {"conv_flatten", 3, kAny, false, false};
    case MatrixLayoutKind::kSplitRows:
      return {"split_rows", 2, 2, true, false};
    case MatrixLayoutKind::kQkvInterleaved:
      return {"qkv_interleaved", 2, 2, true, false};
    case MatrixLayoutKind::kHeads:
      return {"heads", 2, 2, false, true};
    case MatrixLayoutKind::kSplitCols:
      return {"split_cols", 2, 2, true, false};
  }
  return {"", 0, kAny, false, false};
}

// The start of a long list is enough to recognise it.
std::string Joined(absl::Span<const uint64_t> values, absl::string_view separator) {
  constexpr size_t kShown = 8;
  const bool cut = values.size() > kShown;
  return absl::StrCat(absl::StrJoin(values.first(std::min(values.size(), kShown)), separator),
                      cut ? absl::StrCat(separator, "...") : "");
}

// Sums sizes from a caller. On overflow it returns the largest number instead of wrapping.
uint64_t SumOf(absl::Span<const uint64_t> sizes) {
  uint64_t sum = 0;
  for (const uint64_t size : sizes) {
    if (__builtin_add_overflow(sum, size, &sum)) return std::numeric_limits<uint64_t>::max();
  }
  return sum;
}

uint64_t ProductOf(absl::Span<const uint64_t> extents) {
  uint64_t product = 1;
  for (const uint64_t extent : extents) product *= extent;
  return product;
}

absl::Status CheckFields(const KindTraits& kind, const MatrixLayout& layout,
                         absl::Span<const uint64_t> shape) {
  if (kind.name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout kind ", static_cast<int>(layout.kind), " is unknown"));
  }
  if (shape.size() < kind.fewest_dimensions || shape.size() > kind.most_dimensions) {
    return absl::InvalidArgumentError(absl::StrCat("layout ", kind.name, " needs ",
                                                   kind.most_dimensions == kAny ? ">= " : "",
                                                   kind.fewest_dimensions, " dimensions, shape [",
                                                   Joined(shape, ", "), "] has ", shape.size()));
  }
  if (!kind.takes_sizes && !layout.sizes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout ", kind.name, " takes no sizes, given ", Joined(layout.sizes, ", ")));
  }
  const auto zero = std::find(layout.sizes.begin(), layout.sizes.end(), uint64_t{0});
  if (zero != layout.sizes.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layout ", kind.name, ": sizes[", zero - layout.sizes.begin(), "] is 0, must be >= 1"));
  }
  if (!kind.takes_num_heads && layout.num_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout ", kind.name, " takes no num_heads, given ", layout.num_heads));
  }
  if (kind.takes_num_heads && layout.num_heads == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout ", kind.name, ": num_heads is 0, must be >= 1"));
  }
  return absl::OkStatus();
}

// Checks that `sizes` add up to the extent; `extent_name` is "rows" or "columns".
absl::Status CheckSum(const KindTraits& kind, absl::Span<const uint64_t> sizes,
                      absl::string_view extent_name, uint64_t extent) {
  const uint64_t sum = SumOf(sizes);
  if (sum == extent && !sizes.empty()) return absl::OkStatus();
  if (sizes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("layout ", kind.name,
                                                   " needs sizes that add up to the ", extent, " ",
                                                   extent_name, ", given none"));
  }
  return absl::InvalidArgumentError(absl::StrCat("layout ", kind.name, ": sizes ",
                                                 Joined(sizes, " + "), " = ", sum, " are not the ",
                                                 extent, " ", extent_name));
}

// Checks sizes and num_heads against the extents of a shape with the right dimensions.
absl::Status CheckExtents(const KindTraits& kind, const MatrixLayout& layout,
                          absl::Span<const uint64_t> shape) {
  const uint64_t cols = shape.back();
  switch (layout.kind) {
    case MatrixLayoutKind::kMatrix:
    case MatrixLayoutKind::kConvFlatten:
      return absl::OkStatus();
    case MatrixLayoutKind::kBatched:
      if (layout.sizes.empty()) return absl::OkStatus();
      return CheckSum(kind, layout.sizes, "rows of each matrix", shape[shape.size() - 2]);
    case MatrixLayoutKind::kSplitRows:
      return CheckSum(kind, layout.sizes, "rows", shape[0]);
    case MatrixLayoutKind::kSplitCols:
      return CheckSum(kind, layout.sizes, "columns", cols);
    case MatrixLayoutKind::kHeads:
      if (shape[0] % layout.num_heads == 0) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("layout ", kind.name, ": rows ", shape[0],
                                                     " are not a multiple of num_heads ",
                                                     layout.num_heads));
    case MatrixLayoutKind::kQkvInterleaved:
      break;
  }
  if (layout.sizes.size() < 2 || layout.sizes.size() > 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout ", kind.name, " takes 2 .. 4 sizes, given ", layout.sizes.size()));
  }
  const uint64_t sum = SumOf(layout.sizes);
  if (shape[0] % sum == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("layout ", kind.name, ": rows ", shape[0],
                                                 " are not a multiple of sizes ",
                                                 Joined(layout.sizes, " + "), " = ", sum));
}

// Returns a block of `rows` whole rows of `cols` elements from `offset` on.
MatrixBlock WholeRows(int64_t offset, uint64_t rows, uint64_t cols) {
  MatrixBlock block;
  block.rows = static_cast<int64_t>(rows);
  block.cols = static_cast<int64_t>(cols);
  block.row_stride = block.cols;
  block.runs = {{offset, block.rows}};
  return block;
}

// Returns the row blocks of `sizes` in each of `count` contiguous matrices of (rows, cols).
std::vector<MatrixBlock> RowBlocks(uint64_t count, absl::Span<const uint64_t> sizes,
                                   uint64_t cols) {
  std::vector<MatrixBlock> blocks;
  blocks.reserve(count * sizes.size());
  int64_t offset = 0;
  for (uint64_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < sizes.size(); ++k) {
      const bool off = Mutated(Mutation::kSplitRowsOffByOne) && sizes.size() > 1 && k < 2;
      const uint64_t size = !off ? sizes[k] : k == 0 ? sizes[k] + 1 : sizes[k] - 1;
      blocks.push_back(WholeRows(offset, size, cols));
      offset += blocks.back().rows * blocks.back().cols;
    }
  }
  return blocks;
}

std::vector<MatrixBlock> ColumnBlocks(absl::Span<const uint64_t> sizes, uint64_t rows,
                                      uint64_t cols) {
  std::vector<MatrixBlock> blocks;
  int64_t first_column = 0;
  for (const uint64_t size : sizes) {
    blocks.push_back(WholeRows(first_column, rows, size));
    blocks.back().row_stride = static_cast<int64_t>(cols);
    first_column += blocks.back().cols;
  }
  return blocks;
}

// Block k has a run of size_k rows in every query group (rule [L5]).
std::vector<MatrixBlock> InterleavedBlocks(absl::Span<const uint64_t> sizes, uint64_t rows,
                                           uint64_t cols) {
  const int64_t group_rows = static_cast<int64_t>(SumOf(sizes));
  const int64_t num_groups = static_cast<int64_t>(rows) / group_rows;
  std::vector<MatrixBlock> blocks;
  int64_t first_row = 0;
  for (const uint64_t unsigned_size : sizes) {
    const int64_t size = static_cast<int64_t>(unsigned_size);
    MatrixBlock block = WholeRows(0, num_groups * size, cols);
    block.runs.clear();
    for (int64_t group = 0; group < num_groups; ++group) {
      block.runs.push_back({(group * group_rows + first_row) * block.cols, size});
    }
    blocks.push_back(std::move(block));
    first_row += size;
  }
  return blocks;
}

// Returns `count` matrices for each of `sizes` rows.
std::vector<MatrixCount> CountBySize(absl::Span<const uint64_t> sizes, uint64_t count,
                                     uint64_t cols) {
  std::vector<MatrixCount> matrices;
  absl::flat_hash_map<uint64_t, size_t> index_of;
  for (const uint64_t size : sizes) {
    const auto [at, added] = index_of.emplace(size, matrices.size());
    if (added) {
      matrices.push_back({static_cast<int64_t>(size), static_cast<int64_t>(cols), 0});
    }
    matrices[at->second].count += static_cast<int64_t>(count);
  }
  return matrices;
}

}  // namespace

absl::Status CheckLayout(const MatrixLayout& layout, absl::Span<const uint64_t> shape) {
  const KindTraits kind = TraitsOf(layout.kind);
  if (absl::Status status = CheckFields(kind, layout, shape); !status.ok()) return status;
  if (absl::Status status = CheckExtents(kind, layout, shape); !status.ok()) return status;
  const uint64_t runs = NumRowRuns(layout, shape);
  if (runs <= kMostRowRuns) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("layout ", kind.name, " cuts shape [",
                                                 Joined(shape, ", "), "] into ", runs,
                                                 " pieces, must be <= ", kMostRowRuns));
}

uint64_t NumRowRuns(const MatrixLayout& layout, absl::Span<const uint64_t> shape) {
  switch (layout.kind) {
    case MatrixLayoutKind::kMatrix:
    case MatrixLayoutKind::kConvFlatten:
      return 1;
    case MatrixLayoutKind::kBatched:
      return ProductOf(shape.first(shape.size() - 2)) * std::max<size_t>(1, layout.sizes.size());
    case MatrixLayoutKind::kQkvInterleaved:
      return shape[0] / SumOf(layout.sizes) * layout.sizes.size();
    case MatrixLayoutKind::kHeads:
      return layout.num_heads;
    case MatrixLayoutKind::kSplitRows:
    case MatrixLayoutKind::kSplitCols:
      break;
  }
  return layout.sizes.size();
}

absl::StatusOr<std::vector<MatrixCount>> CountMatrices(const MatrixLayout& layout,
                                                       absl::Span<const uint64_t> shape) {
  if (absl::Status status = CheckLayout(layout, shape); !status.ok()) return status;
  const uint64_t cols = shape.back();
  switch (layout.kind) {
    case MatrixLayoutKind::kMatrix:
      break;
    case MatrixLayoutKind::kBatched: {
      const uint64_t rows = shape[shape.size() - 2];
      const uint64_t count = ProductOf(shape.first(shape.size() - 2));
      if (layout.sizes.empty()) return CountBySize({rows}, count, cols);
      return CountBySize(layout.sizes, count, cols);
    }
    case MatrixLayoutKind::kConvFlatten:
      return CountBySize(shape.first(1), 1, ProductOf(shape.subspan(1)));
    case MatrixLayoutKind::kSplitRows:
      return CountBySize(layout.sizes, 1, cols);
    case MatrixLayoutKind::kQkvInterleaved: {
      std::vector<uint64_t> rows = layout.sizes;
      for (uint64_t& size : rows) size *= shape[0] / SumOf(layout.sizes);
      return CountBySize(rows, 1, cols);
    }
    case MatrixLayoutKind::kHeads:
      return CountBySize({shape[0] / layout.num_heads}, layout.num_heads, cols);
    case MatrixLayoutKind::kSplitCols: {
      std::vector<MatrixCount> matrices = CountBySize(layout.sizes, 1, shape[0]);
      for (MatrixCount& matrix : matrices) std::swap(matrix.rows, matrix.cols);
      return matrices;
    }
  }
  return CountBySize(shape.first(1), 1, cols);
}

absl::StatusOr<std::vector<MatrixBlock>> MatrixBlocks(const MatrixLayout& layout,
                                                      absl::Span<const uint64_t> shape) {
  if (absl::Status status = CheckLayout(layout, shape); !status.ok()) return status;
  const uint64_t cols = shape.back();
  switch (layout.kind) {
    case MatrixLayoutKind::kMatrix:
      break;
    case MatrixLayoutKind::kBatched: {
      const uint64_t rows = shape[shape.size() - 2];
      const uint64_t count = ProductOf(shape.first(shape.size() - 2));
      if (layout.sizes.empty()) return RowBlocks(count, {rows}, cols);
      return RowBlocks(count, layout.sizes, cols);
    }
    case MatrixLayoutKind::kConvFlatten:
      return RowBlocks(1, shape.first(1), ProductOf(shape.subspan(1)));
    case MatrixLayoutKind::kSplitRows:
      return RowBlocks(1, layout.sizes, cols);
    case MatrixLayoutKind::kQkvInterleaved:
      return InterleavedBlocks(layout.sizes, shape[0], cols);
    case MatrixLayoutKind::kHeads:
      return RowBlocks(layout.num_heads, {shape[0] / layout.num_heads}, cols);
    case MatrixLayoutKind::kSplitCols:
      return ColumnBlocks(layout.sizes, shape[0], cols);
  }
  return RowBlocks(1, shape.first(1), cols);
}

}  // namespace kaon::kernels
