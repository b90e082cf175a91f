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
    // Divisions of 32 bits are short; the grid has no more tiles than that.
    const auto across = static_cast<uint32_t>((batch.cols + kSide - 1) / kSide);
    const uint32_t tiles = across * static_cast<uint32_t>((batch.rows + kSide - 1) / kSide);
    const uint32_t tile = blockIdx.x % tiles;
    matrix_ = blockIdx.x / tiles;
    row_ = int64_t{tile / across} * kSide;
    col_ = int64_t{tile % across} * kSide;
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

  // Calls use(row, col, load(row, col)) for the first of four neighbours in each row of the
  // matrix's tile. Several loads precede their uses: loads cannot pass stores.
  template <typename Load, typename Use>
  KAON_DEVICE void ForEachFour(const Load& load, const Use& use) const {
    ForEach<4, 4>(batch_.rows - row_, load, use);
  }
  // Same for `size` neighbours in each row of the tile in X.
  template <int size, typename Load, typename Use>
  KAON_DEVICE void ForEachInX(const Load& load, const Use& use) const {
    ForEach<size, size == 4 ? 4 : 2>(x_height(), load, use);
  }

 private:
  template <int size, int ahead, typename Load, typename Use>
  KAON_DEVICE static void ForEach(int64_t height, const Load& load, const Use& use) {
    constexpr int kInRow = kSide / size;
    static_assert(kSide * kInRow % (ahead * kThreads) == 0);
    const int thread = static_cast<int>(threadIdx.x);
    const int col = thread % kInRow * size;
    for (int row = thread / kInRow; row < kSide; row += ahead * kThreads / kInRow) {
      decltype(load(row, col)) loaded[ahead] = {};
      KAON_UNROLL
      for (int k = 0; k < ahead; ++k) {
        const int at = row + k * kThreads / kInRow;
        if (at < height) loaded[k] = load(at, col);
      }
      KAON_UNROLL
      for (int k = 0; k < ahead; ++k) {
        const int at = row + k * kThreads / kInRow;
        if (at < height) use(at, col, loaded[k]);
      }
    }
  }

  const MuonMatrices& batch_;
  const bool transposed_;
  int64_t matrix_;
  int64_t row_;
  int64_t col_;
};

// Adds the norms of one matrix: blocks of a piece in order, then pieces in order. The first warp
// adds a round of pieces while the others load the next.
__global__ void __launch_bounds__(kThreads)
    NormalizationKernel(const MuonMatrices batch, const NormalizationOptions options) {
  constexpr int kBlocksOfPiece = kNormPiece / kNormBlockElements;
  constexpr int kLoading = kThreads - 32;
  // So many that a load takes no longer than the additions.
  constexpr int kPieces = 2 * kLoading;
  static_assert(kPieces % kSumAhead == 0);
  struct Shared {
    alignas(16) double pieces[2][kPieces];
    OfWarps<uint32_t> largest;
  };
  Shared& shared = SharedMemory<Shared>();
  const NormBlock* const norms = batch.matrices[blockIdx.x].norms;
  const int64_t blocks = (batch.rows * batch.cols + kNormBlockElements - 1) / kNormBlockElements;
  const int64_t rounds = (blocks + kPieces * kBlocksOfPiece - 1) / (kPieces * kBlocksOfPiece);
  double sum = 0;
  uint32_t largest = 0;
  for (int64_t round = 0; round <= rounds; ++round) {
    if (threadIdx.x >= 32 && round < rounds) {
      KAON_UNROLL
      for (int at = static_cast<int>(threadIdx.x) - 32; at < kPieces; at += kLoading) {
        const int64_t first = (round * kPieces + at) * kBlocksOfPiece;
        double piece = 0;
        const auto add = [&](const NormBlock& block) {
          piece += block.sum_squares;
          largest = block.largest_bits > largest ? block.largest_bits : largest;
        };
        if (first + kBlocksOfPiece <= blocks) {
          KAON_UNROLL
          for (int i = 0; i < kBlocksOfPiece; ++i) add(norms[first + i]);
        } else {
          for (int64_t block = first; block < blocks; ++block) add(norms[block]);
        }
        shared.pieces[round % 2][at] = piece;
      }
    }
    if (threadIdx.x == 0 && round > 0) {
      sum = SumInOrder(sum, shared.pieces[(round - 1) % 2], kPieces);
    }
    __syncthreads();
  }
  RaiseInWarps(largest, shared.largest);
  __syncthreads();
  if (threadIdx.x != 0) return;
  MatrixFacts& facts = batch.facts[blockIdx.x];
  const double absolute_max = FloatOf(LargestOfWarps(shared.largest));
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
  const MuonMatrix matrix = batch.matrices[place.matrix()];
  const MatrixFacts facts = batch.facts[Has(SeededBug::kFirstOfBatchOnly) ? 0 : place.matrix()];
  const Normalization normalization = {facts.scale, facts.norm};
  const bool is_zero = facts.absolute_max == 0;
  place.ForEachFour(
      [&](int row, int col) {
        const int count = NumOfFour(place.col() + col, batch.cols);
        if (count == 0) return Four<float>{};
        return LoadOfRow(matrix.direction + RowStart(matrix, place.row() + row) + place.col() + col,
                         count);
      },
      [&](int row, int col, const Four<float>& x) {
        for (int i = 0; i < 4; ++i) {
          tile.values[row][col + i] = is_zero ? 0.0f : Normalized(normalization, x.of[i]);
        }
      });
  __syncthreads();
  T* const to = static_cast<T*>(matrix.normalized) + place.x_row() * batch.pitch + place.x_col();
  place.template ForEachInX<Vector::kSize>(
      [&](int row, int col) {
        Vector x = {};
        for (int i = 0; i < Vector::kSize; ++i) {
          if (i >= place.x_width() - col) continue;
          x.of[i] = Stored<dtype>::Of(TilePlace::InX(tile, place.transposed(), row, col + i));
        }
        return x;
      },
      [&](int row, int col, const Vector& x) {
        T* const at = to + row * batch.pitch + col;
        const int64_t count = place.x_width() - col;
        if (count >= Vector::kSize) {
          *reinterpret_cast<Vector*>(at) = x;
          return;
        }
        for (int i = 0; i < Vector::kSize; ++i) {
          if (i < count) at[i] = x.of[i];
        }
      });
}

// Thread blocks per multiprocessor that registers shall leave room for.
constexpr int kTilesAtOnce = 8;

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
  place.template ForEachInX<Vector::kSize>(
      [&](int row, int col) {
        const T* const at = x + row * batch.pitch + col;
        const int64_t count = place.x_width() - col;
        if (count >= Vector::kSize) return *reinterpret_cast<const Vector*>(at);
        Vector values = {};
        for (int i = 0; i < Vector::kSize; ++i) {
          if (i < count) values.of[i] = at[i];
        }
        return values;
      },
      [&](int row, int col, const Vector& values) {
        for (int i = 0; i < Vector::kSize; ++i) {
          TilePlace::InX(tile, transposed, row, col + i) = Stored<dtype>::ToFloat(values.of[i]);
        }
      });
}

// Four weights of a row.
struct FourWeights {
  Four<float> values;
  int64_t first;
  int count;
};

template <NsDType dtype>
__global__ void __launch_bounds__(kThreads, kTilesAtOnce)
    StepKernel(const MuonMatrices batch, double* tile_squares) {
  StepShared& shared = SharedMemory<StepShared>();
  FillDigestTable(shared.digest);
  const TilePlace place(batch);
  const MuonMatrix matrix = batch.matrices[place.matrix()];
  MatrixFacts& facts = batch.facts[place.matrix()];
  const bool is_zero = facts.absolute_max == 0;
  LoadTile<dtype>(batch, place, matrix.orthogonal, shared.tile);
  if (!Has(SeededBug::kTileReadTooEarly)) __syncthreads();
  DigestSum digest(shared.digest, matrix.weights_key);
  uint32_t largest = 0;
  double squares = 0;
  place.ForEachFour(
      [&](int row, int col) {
        FourWeights param = {};
        param.count = NumOfFour(place.col() + col, batch.cols);
        if (param.count == 0) return param;
        param.first = RowStart(matrix, place.row() + row) + place.col() + col;
        param.values = LoadOfRow(matrix.param + param.first, param.count);
        return param;
      },
      [&](int row, int col, const FourWeights& param) {
        Four<float> written = {};
        for (int i = 0; i < 4; ++i) {
          if (i >= param.count) continue;
          const float orthogonal = is_zero ? 0.0f : shared.tile.values[row][col + i];
          squares += static_cast<double>(orthogonal) * orthogonal;
          written.of[i] = MuonWeight(matrix.scalars, orthogonal, param.values.of[i]);
          const uint32_t magnitude = BitsOf(written.of[i]) & 0x7fffffffu;
          largest = magnitude > largest ? magnitude : largest;
        }
        float* const to = matrix.new_param + param.first;
        StoreFour(written, to, param.count, IsVectorAligned(to));
        digest.AddWords(written, param.count, param.first);
      });
  AddOfBlock(digest.sum(), shared.digest_sum, &facts.weights_digest);
  RaiseByBlock(largest, shared.largest, &facts.largest_weight_bits);
  const double sum = SumOfBlock(squares, shared.squares);
  if (threadIdx.x == 0) tile_squares[blockIdx.x] = sum;
}

// Adds the squares of the tiles of one matrix in a fixed order.
__global__ void __launch_bounds__(kThreads)
    AddTilesKernel(const MuonMatrices batch, const double* tile_squares, const int64_t num_tiles) {
  constexpr int kAhead = 8;
  const double* const squares = tile_squares + blockIdx.x * num_tiles;
  double sum = 0;
  for (int64_t tile = threadIdx.x; tile < num_tiles; tile += kAhead * kThreads) {
    double x[kAhead];
    KAON_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      const int64_t at = tile + k * kThreads;
      x[k] = at < num_tiles ? squares[at] : 0.0;
    }
    for (const double square : x) sum += square;
  }
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
