#include "kernels/gemm/amx_gemm.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/gemm/amx_tiles.h"
#include "kernels/gemm/blocked_matrix.h"

namespace kaon::kernels {
namespace {

static_assert(kBlockSide == kTileSide, "a tile is a block");

// Number of inner blocks summed before the next right operand (performance.md section 0). The
// second-level cache then holds these blocks of a row of A and of a packed column of B, with the
// columns of a task.
constexpr int64_t kInnerBlocks = 32;
constexpr int64_t kLongestSum = AmxGemm::kLongestSum / kBlockSide;
static_assert(kLongestSum % kInnerBlocks == 0, "a sum ends where a run of inner blocks does");

// A product in blocks.
struct BlockedProduct {
  explicit BlockedProduct(const MatrixProduct& product)
      : rows(BlocksOf(product.rows)),
        cols(BlocksOf(product.cols)),
        inner(BlocksOf(product.inner)),
        transpose_b(product.transpose_b),
        symmetric(product.symmetric) {}

  int64_t rows;
  int64_t cols;
  int64_t inner;
  bool transpose_b;
  bool symmetric;
};

// Blocks of the result that one thread computes.
struct Task {
  int64_t row_begin;
  int64_t row_end;
  int64_t col_begin;
  int64_t col_end;
};

// Depends on the shape alone. Large tasks read less from memory; small ones keep every thread busy
// until the end.
int64_t TaskSide(const BlockedProduct& p) {
  const int64_t blocks = p.rows * p.cols;
  if (blocks >= 64 * 64) return 16;
  return blocks >= 32 * 32 ? 8 : 4;
}

std::vector<Task> TasksOf(const BlockedProduct& p) {
  const int64_t side = TaskSide(p);
  std::vector<Task> tasks;
  std::vector<Task> halves;
  for (int64_t col = 0; col < p.cols; col += side) {
    for (int64_t row = p.symmetric ? col : 0; row < p.rows; row += side) {
      const Task task = {row, std::min(row + side, p.rows), col, std::min(col + side, p.cols)};
      // Tasks on the diagonal are half the work and run last.
      (p.symmetric && row == col ? halves : tasks).push_back(task);
    }
  }
  tasks.insert(tasks.end(), halves.begin(), halves.end());
  return tasks;
}

// Packed columns of blocks of B, one after another.
void PackColumns(const BlockedProduct& p, const uint16_t* b, ThreadPool& pool, uint16_t* packed) {
  pool.ParallelFor(p.cols, [&](int64_t col) {
    uint16_t* to = packed + col * p.inner * kBlockElements;
    for (int64_t k = 0; k < p.inner; ++k, to += kBlockElements) {
      if (p.transpose_b) {
        PackTransposedBlock(b + (col * p.inner + k) * kBlockElements, to);
      } else {
        PackBlock(b + (k * p.cols + col) * kBlockElements, to);
      }
    }
  });
}

// Adds the sums of a block of the result in float64. Used if its inner dimension is too long for
// one fp32 sum.
struct LongSums {
  double values[kBlockElements] = {};

  void Add(const SumsOfBlock& sums) {
    for (int64_t i = 0; i < kBlockElements; ++i) values[i] += sums.values[i];
  }
  void Round(SumsOfBlock& to) const {
    for (int64_t i = 0; i < kBlockElements; ++i) to.values[i] = static_cast<float>(values[i]);
  }
};

// Calls emit(row, col, sums) for each block of the task, in the calling thread.
template <typename Emit>
void RunTask(const BlockedProduct& p, const Task& task, const uint16_t* a, const uint16_t* packed_b,
             const Emit& emit) {
  const AmxTiles tiles;
  const int64_t stride = p.inner > kInnerBlocks ? task.col_end - task.col_begin : 0;
  const auto sums = std::make_unique_for_overwrite<SumsOfBlock[]>(
      std::max<int64_t>(1, stride * (task.row_end - task.row_begin)));
  std::vector<LongSums> long_sums(p.inner > kLongestSum ? stride * (task.row_end - task.row_begin)
                                                        : 0);
  for (int64_t k = 0; k < p.inner; k += kInnerBlocks) {
    const int64_t count = std::min(kInnerBlocks, p.inner - k);
    for (int64_t i = task.row_begin; i < task.row_end; ++i) {
      const int64_t end = p.symmetric ? std::min(task.col_end, i + 1) : task.col_end;
      for (int64_t j = task.col_begin; j < end; ++j) {
        const int64_t at = stride == 0 ? 0 : (i - task.row_begin) * stride + j - task.col_begin;
        SumsOfBlock& block = sums[at];
        MultiplyBlocks(a + (i * p.inner + k) * kBlockElements,
                       packed_b + (j * p.inner + k) * kBlockElements, count, k % kLongestSum > 0,
                       block);
        const bool is_last = k + count == p.inner;
        if (!long_sums.empty() && (is_last || (k + count) % kLongestSum == 0)) {
          long_sums[at].Add(block);
          if (is_last) long_sums[at].Round(block);
        }
        if (is_last) emit(i, j, block);
      }
    }
  }
}

template <typename Emit>
void Run(const BlockedProduct& p, const uint16_t* a, const uint16_t* b, ThreadPool& pool,
         StoredMatrix& packed, const Emit& emit) {
  PackColumns(p, b, pool, packed.data());
  const std::vector<Task> tasks = TasksOf(p);
  pool.ParallelFor(static_cast<int64_t>(tasks.size()),
                   [&](int64_t i) { RunTask(p, tasks[i], a, packed.data(), emit); });
}

StoredMatrix Blocked(int64_t rows, int64_t cols, int64_t stride, const uint16_t* from,
                     ThreadPool& pool) {
  StoredMatrix to(BlockedElements(rows, cols));
  pool.ParallelFor(BlocksOf(rows), [&](int64_t i) {
    for (int64_t j = 0; j < BlocksOf(cols); ++j) {
      const int64_t row = i * kBlockSide;
      const int64_t col = j * kBlockSide;
      CopyToBlock(from + row * stride + col, stride, std::min(kBlockSide, rows - row),
                  std::min(kBlockSide, cols - col), to.data() + BlockedIndex(cols, row, col));
    }
  });
  return to;
}

// Stores one block of sums into row-major C; if C is symmetric, also its mirror image.
void StoreSums(const MatrixProduct& p, int64_t block_row, int64_t block_col,
               const SumsOfBlock& sums, float* c) {
  const int64_t row = block_row * kBlockSide;
  const int64_t col = block_col * kBlockSide;
  const bool mirrored = p.symmetric && block_row != block_col;
  for (int64_t i = 0; i < std::min(kBlockSide, p.rows - row); ++i) {
    for (int64_t j = 0; j < std::min(kBlockSide, p.cols - col); ++j) {
      float& to = c[(row + i) * p.CStride() + col + j];
      const float scaled = p.alpha * SumAt(sums, i, j);
      to = p.beta == 0 ? scaled : std::fma(p.beta, to, scaled);
      if (mirrored) c[(col + j) * p.CStride() + row + i] = to;
    }
  }
}

}  // namespace

AmxGemm::AmxGemm(std::unique_ptr<Gemm> fp32, ThreadPool& pool)
    : fp32_(std::move(fp32)), pool_(pool) {
  CHECK(HasAmx()) << "this machine has no AMX tiles";
}

int64_t AmxGemm::SumsBytes(const MatrixProduct& product) {
  const BlockedProduct blocked(product);
  if (blocked.inner <= kInnerBlocks) return sizeof(SumsOfBlock);
  const int64_t side = TaskSide(blocked);
  const int64_t count = std::min(side, blocked.rows) * std::min(side, blocked.cols);
  const size_t of_each = sizeof(SumsOfBlock) + (blocked.inner > kLongestSum ? sizeof(LongSums) : 0);
  return count * static_cast<int64_t>(of_each);
}

void AmxGemm::Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) {
  fp32_->Multiply(product, a, b, c);
}

void AmxGemm::MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                               float* c) {
  const int64_t b_rows = product.transpose_b ? product.cols : product.inner;
  const StoredMatrix blocked_a = Blocked(product.rows, product.inner, product.AStride(), a, pool_);
  const StoredMatrix blocked_b = Blocked(b_rows, product.BCols(), product.BStride(), b, pool_);
  const BlockedProduct blocked(product);
  StoredMatrix packed(blocked_b.num_elements());
  Run(blocked, blocked_a.data(), blocked_b.data(), pool_, packed,
      [&](int64_t i, int64_t j, const SumsOfBlock& sums) { StoreSums(product, i, j, sums, c); });
}

int64_t AmxGemm::StoredElements(int64_t rows, int64_t cols) const {
  return BlockedElements(rows, cols);
}

int64_t AmxGemm::StoredIndex(int64_t cols, int64_t row, int64_t col) const {
  return BlockedIndex(cols, row, col);
}

void AmxGemm::StoreTile(const TilePlace& place, const FloatTile& from, StoredMatrix& to) const {
  RoundToBlock(from.values, place.height(), place.width(),
               to.data() + BlockedIndex(place.cols, place.row, place.col));
}

void AmxGemm::LoadTile(const TilePlace& place, const StoredMatrix& from, FloatTile& to) const {
  WidenBlock(from.data() + BlockedIndex(place.cols, place.row, place.col), to.values);
}

void AmxGemm::MultiplyStored(const MatrixProduct& product, const StoredOperands& operands,
                             StoredMatrix& to, ProductScratch& scratch) {
  const BlockedProduct blocked(product);
  const int64_t packed = blocked.inner * blocked.cols * kBlockElements;
  if (scratch.packed.num_elements() < packed) scratch.packed = StoredMatrix(packed);
  const uint16_t* addend = product.beta != 0 ? operands.addend->data() : nullptr;
  Run(blocked, operands.a.data(), operands.b.data(), pool_, scratch.packed,
      [&](int64_t i, int64_t j, const SumsOfBlock& sums) {
        const int64_t at = (i * blocked.cols + j) * kBlockElements;
        uint16_t* block = to.data() + at;
        RoundSums(sums, product.alpha, product.beta, addend == nullptr ? nullptr : addend + at,
                  block);
        if (product.symmetric && i != j) {
          TransposeBlock(block, to.data() + (j * blocked.cols + i) * kBlockElements);
        }
      });
}

}  // namespace kaon::kernels
