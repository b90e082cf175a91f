#include "kernels/orthogonalize/newton_schulz.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/mutation.h"
#include "kernels/orthogonalize/coefficients.h"
#include "kernels/orthogonalize/iteration.h"
#include "kernels/orthogonalize/matrix_storage.h"
#include "kernels/orthogonalize/normalization.h"
#include "kernels/reduce/grad_norm.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

struct Normalize {
  KAON_HOST_DEVICE static void Run(float scale, float norm, float* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = Normalized({scale, norm}, x[i]);
  }
};

MatrixNorm NormOf(absl::Span<const float> x, ThreadPool& pool) {
  std::vector<MatrixNorm> pieces((x.size() + kNormPiece - 1) / kNormPiece);
  const auto count = static_cast<int64_t>(pieces.size());
  pool.ParallelFor(
      count, [&](int64_t i) { pieces[i] = NormOfPiece(x.subspan(i * kNormPiece, kNormPiece)); });
  MatrixNorm norm;
  for (const MatrixNorm& piece : pieces) norm.Add(piece);
  return norm;
}

// tile[j][i] <- from[i][j], for `height` rows of `from` that lie `stride` apart.
void TransposeInto(const float* from, int64_t stride, int64_t height, int64_t width,
                   FloatTile& tile) {
  for (int64_t i = 0; i < height; ++i) {
    for (int64_t j = 0; j < width; ++j) tile.values[j * kTileSide + i] = from[i * stride + j];
  }
}

// The given matrix and the wide one that is iterated on: its transpose if it is tall (rule [N4]).
// Normalising either gives the same bits, because it is element-wise.
class WideForm {
 public:
  explicit WideForm(MatrixShape shape) : shape_(shape), transposed_(shape.rows > shape.cols) {}

  int64_t r() const { return std::min(shape_.rows, shape_.cols); }
  int64_t c() const { return std::max(shape_.rows, shape_.cols); }

  // Calls visit(row) for the first row of each stripe of kTileSide rows of the given matrix.
  template <typename Visit>
  void ForEachStripe(ThreadPool& pool, const Visit& visit) const {
    pool.ParallelFor((shape_.rows + kTileSide - 1) / kTileSide,
                     [&](int64_t i) { visit(i * kTileSide); });
  }

  // Calls visit(tile of the given matrix) along a stripe.
  template <typename Visit>
  void ForEachTile(int64_t row, const Visit& visit) const {
    for (int64_t col = 0; col < shape_.cols; col += kTileSide) {
      visit(TilePlace{shape_.rows, shape_.cols, row, col});
    }
  }

  // Returns the place of the given matrix's tile in the wide one.
  TilePlace InWide(const TilePlace& given) const {
    if (!transposed_) return given;
    return {given.cols, given.rows, given.col, given.row};
  }

  // Reads a tile of the wide matrix from rows of the given one.
  void Read(const TilePlace& given, const float* in, FloatTile& wide) const {
    const float* from = in + given.row * given.cols + given.col;
    if (transposed_) {
      TransposeInto(from, given.cols, given.height(), given.width(), wide);
      return;
    }
    for (int64_t i = 0; i < given.height(); ++i) {
      std::copy_n(from + i * given.cols, given.width(), wide.values + i * kTileSide);
    }
  }

  // Writes a tile of the wide matrix into its stripe of the given one.
  void Write(const TilePlace& given, const FloatTile& wide, float* stripe) const {
    FloatTile transposed;
    const bool transposes = transposed_ && !Mutated(Mutation::kNotTransposedBack);
    if (transposes) {
      TransposeInto(wide.values, kTileSide, given.width(), given.height(), transposed);
    }
    const float* from = transposes ? transposed.values : wide.values;
    for (int64_t i = 0; i < given.height(); ++i) {
      std::copy_n(from + i * kTileSide, given.width(), stripe + i * given.cols + given.col);
    }
  }

 private:
  const MatrixShape shape_;
  const bool transposed_;
};

template <typename Storage>
void Orthogonalize(const Iteration& it, Gemm& gemm, const Normalization& normalization,
                   const OrthogonalizedMatrix& matrix, ThreadPool& pool, OrthogonalizedRows sink) {
  const WideForm form(matrix.shape);
  Iterated<Storage> iterated(it, gemm, matrix.in);
  form.ForEachStripe(pool, [&](int64_t row) {
    FloatTile tile = {};
    form.ForEachTile(row, [&](const TilePlace& place) {
      form.Read(place, matrix.in.data(), tile);
      RunVectorized<Normalize>(normalization.scale, normalization.norm, &tile.values[0],
                               kTileSide * kTileSide);
      iterated.StoreTile(form.InWide(place), tile);
    });
  });
  iterated.Run(pool);
  form.ForEachStripe(pool, [&](int64_t row) {
    const int64_t cols = matrix.shape.cols;
    std::vector<float> stripe(std::min(kTileSide, matrix.shape.rows - row) * cols);
    FloatTile tile;
    form.ForEachTile(row, [&](const TilePlace& place) {
      iterated.LoadTile(form.InWide(place), tile);
      form.Write(place, tile, stripe.data());
    });
    sink(row * cols, stripe);
  });
}

}  // namespace

void MatrixNorm::Add(const MatrixNorm& piece) {
  sum_squares += piece.sum_squares;
  absolute_max = std::max(absolute_max, piece.absolute_max);
}

MatrixNorm NormOfPiece(absl::Span<const float> piece) {
  const GradNorm norm = ComputeGradNorm(piece);
  return {norm.sum_squares, norm.absolute_max};
}

void NewtonSchulz(const NewtonSchulzConfig& config, const OrthogonalizedMatrix& matrix, Gemm& gemm,
                  ThreadPool& pool, OrthogonalizedRows sink) {
  const MatrixShape shape = matrix.shape;
  CHECK(static_cast<int64_t>(matrix.in.size()) == shape.rows * shape.cols)
      << matrix.in.size() << " in, shape " << shape.rows << "x" << shape.cols;
  if (matrix.in.empty()) return;
  const absl::optional<NewtonSchulzCoefficientSet> set = FindCoefficientSet(config);
  CHECK(set) << "coefficient set " << static_cast<int>(config.coefficients) << " has no row";
  const MatrixNorm norm = matrix.norm ? *matrix.norm : NormOf(matrix.in, pool);
  if (norm.absolute_max == 0) {
    const std::vector<float> zeros(shape.cols);
    for (int64_t row = 0; row < shape.rows; ++row) sink(row * shape.cols, zeros);
    return;
  }
  const Normalization normalization = NormalizationOf(
      {config.norm_mode, config.norm_eps, set->safety_factor}, norm.sum_squares, norm.absolute_max);
  const Iteration it{config, *set, std::min(shape.rows, shape.cols),
                     std::max(shape.rows, shape.cols)};
  switch (config.dtype) {
    case NsDType::kFloat32:
      return Orthogonalize<Float32Storage>(it, gemm, normalization, matrix, pool, sink);
    case NsDType::kBFloat16:
      return Orthogonalize<BFloat16Storage>(it, gemm, normalization, matrix, pool, sink);
    case NsDType::kFloat16:
      return Orthogonalize<Float16Storage>(it, gemm, normalization, matrix, pool, sink);
  }
}

}  // namespace kaon::kernels
