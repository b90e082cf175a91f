#include "tests/conformance/float64_blocks.h"

#include <algorithm>
#include <cmath>

namespace kaon::conformance {
namespace {

using kernels::MatrixLayout;
using kernels::MatrixLayoutKind;

// Rows `rows` and columns from `first_col` of a row-major matrix that starts at `origin`.
Block TakeRows(size_t origin, size_t stride, const std::vector<size_t>& rows, size_t first_col,
               size_t num_cols) {
  Block block;
  for (const size_t row : rows) {
    block.elements.emplace_back();
    for (size_t j = 0; j < num_cols; ++j) {
      block.elements.back().push_back(origin + row * stride + first_col + j);
    }
  }
  return block;
}

std::vector<size_t> Range(size_t first, size_t count) {
  std::vector<size_t> range;
  for (size_t i = 0; i < count; ++i) range.push_back(first + i);
  return range;
}

std::vector<uint64_t> RowSizes(const MatrixLayout& layout, size_t rows) {
  if (layout.kind == MatrixLayoutKind::kHeads) {
    return std::vector<uint64_t>(layout.num_heads, rows / layout.num_heads);
  }
  return layout.sizes.empty() ? std::vector<uint64_t>{rows} : layout.sizes;
}

void CutRows(const MatrixLayout& layout, size_t origin, size_t rows, size_t cols,
             std::vector<Block>& blocks) {
  size_t first = 0;
  for (const uint64_t size : RowSizes(layout, rows)) {
    blocks.push_back(TakeRows(origin, cols, Range(first, size), 0, cols));
    first += size;
  }
}

std::vector<Block> Columns(const MatrixLayout& layout, size_t rows, size_t cols) {
  std::vector<Block> blocks;
  size_t first = 0;
  for (const uint64_t size : layout.sizes) {
    blocks.push_back(TakeRows(0, cols, Range(0, rows), first, size));
    first += size;
  }
  return blocks;
}

// The i-th kind of row of every query group makes one matrix ([L5]).
std::vector<Block> Interleaved(const MatrixLayout& layout, size_t rows, size_t cols) {
  size_t group = 0;
  for (const uint64_t size : layout.sizes) group += size;
  std::vector<Block> blocks;
  size_t offset = 0;
  for (const uint64_t size : layout.sizes) {
    std::vector<size_t> taken;
    for (size_t row = 0; row < rows; ++row) {
      if (row % group >= offset && row % group < offset + size) taken.push_back(row);
    }
    blocks.push_back(TakeRows(0, cols, taken, 0, cols));
    offset += size;
  }
  return blocks;
}

}  // namespace

reference::Matrix Block::Cut(const std::vector<double>& from) const {
  reference::Matrix x(elements.size(), elements.at(0).size());
  for (int i = 0; i < x.rows(); ++i) {
    for (int j = 0; j < x.cols(); ++j) x(i, j) = from.at(elements[i][j]);
  }
  return x;
}

void Block::Join(const reference::Matrix& x, std::vector<double>& to) const {
  for (int i = 0; i < x.rows(); ++i) {
    for (int j = 0; j < x.cols(); ++j) to.at(elements[i][j]) = x(i, j);
  }
}

std::vector<Block> BlocksOf(const MatrixLayout& layout, const std::vector<uint64_t>& shape) {
  size_t n = 1;
  for (const uint64_t extent : shape) n *= extent;
  const bool conv = layout.kind == MatrixLayoutKind::kConvFlatten;
  const bool batched = layout.kind == MatrixLayoutKind::kBatched;
  const size_t rows = batched ? shape[shape.size() - 2] : shape[0];
  const size_t cols = conv ? n / rows : shape.back();
  if (layout.kind == MatrixLayoutKind::kSplitCols) return Columns(layout, rows, cols);
  if (layout.kind == MatrixLayoutKind::kQkvInterleaved) return Interleaved(layout, rows, cols);
  std::vector<Block> blocks;
  for (size_t origin = 0; origin < n; origin += rows * cols) {
    CutRows(layout, origin, rows, cols, blocks);
  }
  return blocks;
}

double ScaleOf(const kernels::MuonConfig& config, double rows, double cols) {
  const double fan_out = config.layout.transposed ? cols : rows;
  const double fan_in = config.layout.transposed ? rows : cols;
  switch (config.scale) {
    case kernels::UpdateScale::kNone:
      return config.scale_extra;
    case kernels::UpdateScale::kOriginal:
      return config.scale_extra * reference::ScaleOriginal(fan_out, fan_in);
    case kernels::UpdateScale::kMatchRmsAdamW:
      return config.scale_extra * reference::ScaleMatchRmsAdamW(fan_out, fan_in);
    case kernels::UpdateScale::kMaxDim:
      return config.scale_extra * std::sqrt(std::max(fan_out, fan_in));
    case kernels::UpdateScale::kUnitRmsNorm:
      return config.scale_extra * std::sqrt(fan_out / fan_in);
  }
  return 0;
}

}  // namespace kaon::conformance
