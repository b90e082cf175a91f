#include "kernels/cpu/update_workspace.h"

#include <glog/logging.h>

#include <algorithm>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "kernels/cpu/muon_step.h"
#include "kernels/gemm/amx_gemm.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/tiled_gemm.h"
#include "kernels/matrix_layout.h"
#include "kernels/orthogonality.h"

namespace kaon::kernels {
namespace {

// Returns the elements of a matrix as stored: AMX tiles are stored whole.
int64_t Stored(int64_t rows, int64_t cols) {
  const auto whole = [](int64_t n) { return (n + kTileSide - 1) / kTileSide * kTileSide; };
  return whole(rows) * whole(cols);
}

// Returns the bytes of Iterated's matrices (orthogonalize/iteration.h) that do not fit into the
// memory of its direction. Each matrix in it may skip up to the next cache line.
int64_t NotLent(absl::Span<const int64_t> matrices, int64_t lent) {
  int64_t own = 0;
  for (const int64_t bytes : matrices) {
    const int64_t taken = bytes + static_cast<int64_t>(StoredMatrix::kAlignment);
    if (taken <= lent) {
      lent -= taken;
    } else {
      own += bytes;
    }
  }
  return own;
}

// Returns the bytes of Iterated's matrices and of the buffers of its products.
int64_t IterationBytes(absl::string_view backend, int64_t threads, const NewtonSchulzConfig& config,
                       const MatrixCount& matrix) {
  const int64_t r = std::min(matrix.rows, matrix.cols);
  const int64_t c = std::max(matrix.rows, matrix.cols);
  // In Gram form: a group may change to it.
  const int64_t squares = r < c ? 3 : 1;
  const int64_t direction = static_cast<int64_t>(sizeof(float)) * r * c;
  if (config.dtype != NsDType::kBFloat16) {
    // X, and squares: the next X occupies all of the direction's memory.
    return direction + static_cast<int64_t>(sizeof(float)) * squares * r * r;
  }
  const int64_t wide = Stored(r, c);
  std::vector<int64_t> beside_x(1 + squares, 2 * Stored(r, r));
  beside_x[0] = 2 * wide;
  const int64_t matrices = 2 * wide + NotLent(beside_x, direction);
  // The right operand, packed.
  if (absl::EndsWith(backend, "/amx")) return matrices + 2 * wide;
  // An fp32 result. If the library cannot multiply bf16, each thread also widens the right operand
  // and its rows of the left one.
  const int64_t at_once = std::min(threads, (r + TiledGemm::kTileRows - 1) / TiledGemm::kTileRows);
  const int64_t widened = at_once * (wide + std::min(r, TiledGemm::kTileRows) * c);
  return matrices + static_cast<int64_t>(sizeof(float)) * (wide + widened);
}

// Returns the bytes of the sums of one thread if the inner dimension is split. AmxGemm sums the
// blocks of a task, TiledGemm the columns of a tile in fp32 and in float64.
int64_t SumsBytes(absl::string_view backend, const NewtonSchulzConfig& config,
                  const MatrixCount& matrix) {
  const bool is_bf16 = config.dtype == NsDType::kBFloat16;
  const int64_t shortest = std::min(matrix.rows, matrix.cols);
  const int64_t longest = std::max(matrix.rows, matrix.cols);
  if (is_bf16 && absl::EndsWith(backend, "/amx")) {
    return std::max(AmxGemm::SumsBytes({.rows = shortest, .cols = shortest, .inner = longest}),
                    AmxGemm::SumsBytes({.rows = shortest, .cols = longest, .inner = shortest}));
  }
  // Few rows need little memory.
  if (longest <= (is_bf16 ? TiledGemm::kLongestBFloat16Sum : TiledGemm::kLongestSum)) return 0;
  return static_cast<int64_t>(sizeof(float) + sizeof(double)) *
         std::min(TiledGemm::kTileRows, shortest) * TiledGemm::kSummedCols;
}

// Position of a row, and the facts about it once it is stepped.
constexpr int64_t kBytesOfRow = sizeof(int64_t) + 3 * sizeof(double);

// Returns the bytes for one matrix: its iteration, a copy of its elements if they are not
// contiguous, and the positions of its rows. Each thread also needs a stripe of the result, or
// before that its sums.
int64_t MatrixBytes(absl::string_view backend, int64_t threads, const MuonConfig& config,
                    const MatrixCount& matrix) {
  const int64_t elements = matrix.rows * matrix.cols;
  const bool gathers = config.layout.kind == MatrixLayoutKind::kQkvInterleaved ||
                       config.layout.kind == MatrixLayoutKind::kSplitCols;
  const int64_t stripes = std::min(threads, (matrix.rows + kTileSide - 1) / kTileSide);
  const int64_t of_threads =
      std::max(stripes * static_cast<int64_t>(sizeof(float)) * kTileSide * matrix.cols,
               threads * SumsBytes(backend, config.newton_schulz, matrix));
  return IterationBytes(backend, threads, config.newton_schulz, matrix) +
         static_cast<int64_t>(sizeof(float)) * (gathers ? elements : 0) + of_threads +
         kBytesOfRow * matrix.rows;
}

// Returns the bytes of OrthogonalityError, which keeps a block in float64 if that is little work.
int64_t OrthogonalityBytes(const MatrixCount& matrix) {
  const int64_t elements = matrix.rows * matrix.cols;
  const bool whole = elements <= kMostGramElements &&
                     std::min(matrix.rows, matrix.cols) * elements <= 2 * kMostGramProducts;
  return static_cast<int64_t>(sizeof(double)) * ((whole ? elements : 0) + matrix.cols);
}

// Returns the bytes of the positions of the blocks and of their rows.
uint64_t BlocksBytes(const MuonConfig& config, absl::Span<const uint64_t> shape) {
  return NumRowRuns(config.layout, shape) * (sizeof(MatrixBlock) + 2 * sizeof(RowRun));
}

}  // namespace

uint64_t UpdateWorkspaceBytes(absl::string_view backend, uint32_t threads, const RuleConfig& rule,
                              absl::Span<const uint64_t> shape) {
  const auto* muon = std::get_if<MuonConfig>(&rule);
  if (muon == nullptr || !absl::StartsWith(backend, "cpu")) return 0;
  const auto matrices = CountMatrices(muon->layout, shape);
  CHECK(matrices.ok()) << matrices.status();
  const int64_t num_threads = std::max<int64_t>(threads, 1);
  int64_t count = 0;
  int64_t largest = 0;
  int64_t most = 0;
  int64_t shown = 0;
  for (const MatrixCount& matrix : *matrices) {
    count += matrix.count;
    largest = std::max(largest, matrix.rows * matrix.cols);
    most = std::max(most, MatrixBytes(backend, num_threads, *muon, matrix));
    shown = std::max(shown, OrthogonalityBytes(matrix));
  }
  // Small matrices are processed concurrently.
  const int64_t at_once =
      largest <= kSmallMatrixElements ? std::clamp<int64_t>(count, 1, num_threads) : 1;
  return static_cast<uint64_t>(std::max(at_once * most, shown)) + BlocksBytes(*muon, shape);
}

uint64_t OrthogonalityWorkspaceBytes(const RuleConfig& rule, absl::Span<const uint64_t> shape) {
  const auto* muon = std::get_if<MuonConfig>(&rule);
  if (muon == nullptr) return 0;
  const auto matrices = CountMatrices(muon->layout, shape);
  CHECK(matrices.ok()) << matrices.status();
  int64_t most = 0;
  for (const MatrixCount& matrix : *matrices) most = std::max(most, OrthogonalityBytes(matrix));
  return static_cast<uint64_t>(most) + BlocksBytes(*muon, shape);
}

}  // namespace kaon::kernels
