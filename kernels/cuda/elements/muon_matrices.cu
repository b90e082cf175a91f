#include "kernels/cuda/elements/digest_sum.h"
#include "kernels/cuda/elements/four.h"
#include "kernels/cuda/elements/muon_elements.h"
#include "kernels/cuda/elements/muon_matrix.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/float_bits.h"
#include "kernels/orthogonalize/normalization.h"
#include "kernels/reduce/norm_order.h"

namespace kaon::kernels::cuda {
namespace {

// Side of the square of elements that a thread block moves between a parameter and X.
constexpr int kSide = 64;

int64_t NumTiles(const MuonMatrices& batch) {
  return ((batch.rows + kSide - 1) / kSide) * ((batch.cols + kSide - 1) / kSide);
}

template <NsDType dtype>
struct Stored {
  using Type = uint16_t;
  KAON_DEVICE static uint16_t Of(float x) {
    return dtype == NsDType::kBFloat16 ? FloatToBFloat16(x) : FloatToFloat16(x);
  }
  KAON_DEVICE static float ToFloat(uint16_t x) {
    return dtype == NsDType::kBFloat16 ? BFloat16ToFloat(x) : Float16ToFloat(x);
  }
};

template <>
struct Stored<NsDType::kFloat32> {
  using Type = float;
  KAON_DEVICE static float Of(float x) { return x; }
  KAON_DEVICE static float ToFloat(float x) { return x; }
};

// One tile of a matrix as the parameter has it, in shared memory. The padding lets a warp read a
// column without conflicts of banks.
struct Tile {
  float values[kSide][kSide + 1];
};

// The place of a thread block's tile in its matrix and in X.
class TilePlace {
 public:
  KAON_DEVICE explicit TilePlace(const MuonMatrices& batch)
      : batch_(batch), transposed_(batch.rows > batch.cols) {
    const int64_t across = (batch.cols + kSide - 1) / kSide;
    const int64_t tiles = across * ((batch.rows + kSide - 1) / kSide);
    const int64_t tile = blockIdx.x % tiles;
    matrix_ = blockIdx.x / tiles;
    row_ = tile / across * kSide;
    col_ = tile % across * kSide;
  }

  KAON_DEVICE int64_t matrix() const { return matrix_; }
  KAON_DEVICE int64_t row() const { return row_; }
  KAON_DEVICE int64_t col() const { return col_; }
  // Row and column of the tile in X, and its extents there.
  KAON_DEVICE int64_t x_row() const { return transposed_ ? col_ : row_; }
  KAON_DEVICE int64_t x_col() const { return transposed_ ? row_ : col_; }
  KAON_DEVICE int64_t x_height() const {
    return (transposed_ ? batch_.cols : batch_.rows) - x_row();
  }
  KAON_DEVICE int64_t x_width() const {
    return (transposed_ ? batch_.rows : batch_.cols) - x_col() -
           (Has(SeededBug::kTileEdgeOffByOne) ? 1 : 0);
  }
  // Returns the value that is at (row, col) of the tile in X.
  KAON_DEVICE static float& InX(Tile& tile, bool transposed, int row, int col) {
    return transposed ? tile.values[col][row] : tile.values[row][col];
  }
  KAON_DEVICE bool transposed() const { return transposed_; }

  // Calls visit(row, col) for the first of four neighbours in each row of the matrix's tile.
  template <typename Visit>
  KAON_DEVICE void ForEachFour(const Visit& visit) const {
    for (int at = static_cast<int>(threadIdx.x); at < kSide * kSide / 4; at += kThreads) {
      const int row = at / (kSide / 4);
      if (row_ + row < batch_.rows) visit(row, at % (kSide / 4) * 4);
    }
  }
  // Calls visit(row, col) for the first of `size` neighbours in each row of the tile in X.
  template <int size, typename Visit>
  KAON_DEVICE void ForEachInX(const Visit& visit) const {
    for (int at = static_cast<int>(threadIdx.x); at < kSide * kSide / size; at += kThreads) {
      const int row = at / (kSide / size);
      if (row < x_height()) visit(row, at % (kSide / size) * size);
    }
  }

 private:
  const MuonMatrices& batch_;
  const bool transposed_;
  int64_t matrix_;
  int64_t row_;
  int64_t col_;
};

// Adds the norms of one matrix: blocks of a piece in order, then pieces in order.
__global__ void __launch_bounds__(kThreads)
    NormalizationKernel(const MuonMatrices batch, const NormalizationOptions options) {
  constexpr int64_t kBlocksOfPiece = kNormPiece / kNormBlockElements;
  struct Shared {
    double piece[kThreads];
    uint32_t largest[kThreads];
  };
  Shared& shared = SharedMemory<Shared>();
  const NormBlock* const norms = batch.matrices[blockIdx.x].norms;
  const int64_t blocks = (batch.rows * batch.cols + kNormBlockElements - 1) / kNormBlockElements;
  double sum = 0;
  uint32_t largest = 0;
  for (int64_t begin = 0; begin < blocks; begin += kThreads * kBlocksOfPiece) {
    double piece = 0;
    uint32_t of_piece = 0;
    const int64_t first = begin + threadIdx.x * kBlocksOfPiece;
    for (int64_t block = first; block < first + kBlocksOfPiece && block < blocks; ++block) {
      piece += norms[block].sum_squares;
      if (norms[block].largest_bits > of_piece) of_piece = norms[block].largest_bits;
    }
    shared.piece[threadIdx.x] = piece;
    shared.largest[threadIdx.x] = of_piece;
    __syncthreads();
    for (int i = 0; threadIdx.x == 0 && i < kThreads; ++i) {
      sum += shared.piece[i];
      if (shared.largest[i] > largest) largest = shared.largest[i];
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  MatrixFacts& facts = batch.facts[blockIdx.x];
  const double absolute_max = FloatOf(largest);
  const Normalization normalization =
      absolute_max == 0 ? Normalization() : NormalizationOf(options, sum, absolute_max);
  facts.absolute_max = absolute_max;
  facts.scale = normalization.scale;
  facts.norm = normalization.norm;
}

// The elements of X that 16 bytes hold.
template <typename T>
struct alignas(16) XVector {
  static constexpr int kSize = 16 / sizeof(T);
  T of[kSize];
};

template <NsDType dtype>
__global__ void __launch_bounds__(kThreads) NormalizeKernel(const MuonMatrices batch) {
  using T = typename Stored<dtype>::Type;
  using Vector = XVector<T>;
  Tile& tile = SharedMemory<Tile>();
  const TilePlace place(batch);
  const MuonMatrix& matrix = batch.matrices[place.matrix()];
  const MatrixFacts& facts = batch.facts[Has(SeededBug::kFirstOfBatchOnly) ? 0 : place.matrix()];
  const Normalization normalization = {facts.scale, facts.norm};
  const bool is_zero = facts.absolute_max == 0;
  const float* const direction = matrix.direction;
  place.ForEachFour([&](int row, int col) {
    const int count = NumOfFour(place.col() + col, batch.cols);
    if (count == 0) return;
    const float* const from = direction + RowStart(matrix, place.row() + row) + place.col() + col;
    const Four<float> x = LoadOfRow(from, count);
    for (int i = 0; i < 4; ++i) {
      tile.values[row][col + i] = is_zero ? 0.0f : Normalized(normalization, x.of[i]);
    }
  });
  __syncthreads();
  T* const to = static_cast<T*>(matrix.normalized) + place.x_row() * batch.pitch + place.x_col();
  place.template ForEachInX<Vector::kSize>([&](int row, int col) {
    Vector x = {};
    const int64_t count = place.x_width() - col;
    for (int i = 0; i < Vector::kSize; ++i) {
      if (i >= count) continue;
      x.of[i] = Stored<dtype>::Of(TilePlace::InX(tile, place.transposed(), row, col + i));
    }
    T* const at = to + row * batch.pitch + col;
    if (count >= Vector::kSize) {
      *reinterpret_cast<Vector*>(at) = x;
      return;
    }
    for (int i = 0; i < Vector::kSize; ++i) {
      if (i < count) at[i] = x.of[i];
    }
  });
}

struct StepShared {
  Tile tile;
  DigestTable digest;
  OfWarps<double> squares;
  OfWarps<uint64_t> digest_sum;
  OfWarps<uint32_t> largest;
};

template <NsDType dtype>
KAON_DEVICE void LoadTile(const MuonMatrices& batch, const TilePlace& place, const void* from,
                          Tile& tile) {
  using T = typename Stored<dtype>::Type;
  using Vector = XVector<T>;
  const bool transposed = place.transposed() && !Has(SeededBug::kNotTransposedBack);
  const T* const x = static_cast<const T*>(from) + place.x_row() * batch.pitch + place.x_col();
  place.template ForEachInX<Vector::kSize>([&](int row, int col) {
    const T* const at = x + row * batch.pitch + col;
    const int64_t count = place.x_width() - col;
    Vector values = {};
    if (count >= Vector::kSize) {
      values = *reinterpret_cast<const Vector*>(at);
    } else {
      for (int i = 0; i < Vector::kSize; ++i) {
        if (i < count) values.of[i] = at[i];
      }
    }
    for (int i = 0; i < Vector::kSize; ++i) {
      TilePlace::InX(tile, transposed, row, col + i) = Stored<dtype>::ToFloat(values.of[i]);
    }
  });
}

template <NsDType dtype>
__global__ void __launch_bounds__(kThreads)
    StepKernel(const MuonMatrices batch, double* tile_squares) {
  StepShared& shared = SharedMemory<StepShared>();
  FillDigestTable(shared.digest);
  const TilePlace place(batch);
  const MuonMatrix& matrix = batch.matrices[place.matrix()];
  MatrixFacts& facts = batch.facts[place.matrix()];
  const bool is_zero = facts.absolute_max == 0;
  LoadTile<dtype>(batch, place, matrix.orthogonal, shared.tile);
  if (!Has(SeededBug::kTileReadTooEarly)) __syncthreads();
  const MuonWeightScalars scalars = matrix.scalars;
  DigestSum digest(shared.digest, matrix.weights_key);
  uint32_t largest = 0;
  double squares = 0;
  place.ForEachFour([&](int row, int col) {
    const int count = NumOfFour(place.col() + col, batch.cols);
    if (count == 0) return;
    const int64_t element = RowStart(matrix, place.row() + row) + place.col() + col;
    const Four<float> param = LoadOfRow(matrix.param + element, count);
    Four<float> written = {};
    for (int i = 0; i < 4; ++i) {
      if (i >= count) continue;
      const float orthogonal = is_zero ? 0.0f : shared.tile.values[row][col + i];
      squares += static_cast<double>(orthogonal) * orthogonal;
      written.of[i] = MuonWeight(scalars, orthogonal, param.of[i]);
      const uint32_t magnitude = BitsOf(written.of[i]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    float* const to = matrix.new_param + element;
    StoreFour(written, to, count, IsVectorAligned(to));
    digest.AddWords(written, count, element);
  });
  AddOfBlock(digest.sum(), shared.digest_sum, &facts.weights_digest);
  RaiseByBlock(largest, shared.largest, &facts.largest_weight_bits);
  const double sum = SumOfBlock(squares, shared.squares);
  if (threadIdx.x == 0) tile_squares[blockIdx.x] = sum;
}

// Adds the squares of the tiles of one matrix in a fixed order.
__global__ void __launch_bounds__(kThreads)
    AddTilesKernel(const MuonMatrices batch, const double* tile_squares, const int64_t num_tiles) {
  const double* const squares = tile_squares + blockIdx.x * num_tiles;
  double sum = 0;
  for (int64_t tile = threadIdx.x; tile < num_tiles; tile += kThreads) sum += squares[tile];
  sum = SumOfBlock(sum, SharedMemory<OfWarps<double>>());
  if (threadIdx.x == 0) batch.facts[blockIdx.x].sum_squares = sum;
}

template <NsDType dtype>
void NormalizeAs(Stream& stream, const MuonMatrices& batch) {
  Launch(stream, {batch.count * NumTiles(batch), kThreads}, NormalizeKernel<dtype>, batch);
}

template <NsDType dtype>
void StepAs(Stream& stream, const MuonMatrices& batch, double* tile_squares) {
  const int64_t tiles = NumTiles(batch);
  Launch(stream, {batch.count * tiles, kThreads}, StepKernel<dtype>, batch, tile_squares);
  Launch(stream, {batch.count, kThreads}, AddTilesKernel, batch, tile_squares, tiles);
}

}  // namespace

int64_t NumTileSquares(const MuonMatrices& batch) { return batch.count * NumTiles(batch); }

void NormalizeMatrices(Stream& stream, const MuonMatrices& batch,
                       const NormalizationOptions& options) {
  Launch(stream, {batch.count, kThreads}, NormalizationKernel, batch, options);
  switch (batch.dtype) {
    case NsDType::kFloat32:
      return NormalizeAs<NsDType::kFloat32>(stream, batch);
    case NsDType::kBFloat16:
      return NormalizeAs<NsDType::kBFloat16>(stream, batch);
    case NsDType::kFloat16:
      return NormalizeAs<NsDType::kFloat16>(stream, batch);
  }
}

void StepMatrices(Stream& stream, const MuonMatrices& batch, double* tile_squares) {
  switch (batch.dtype) {
    case NsDType::kFloat32:
      return StepAs<NsDType::kFloat32>(stream, batch, tile_squares);
    case NsDType::kBFloat16:
      return StepAs<NsDType::kBFloat16>(stream, batch, tile_squares);
    case NsDType::kFloat16:
      return StepAs<NsDType::kFloat16>(stream, batch, tile_squares);
  }
}

}  // namespace kaon::kernels::cuda
