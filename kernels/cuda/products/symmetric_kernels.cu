#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/half_pair.h"
#include "kernels/cuda/products/instructions.h"
#include "kernels/cuda/products/symmetric_kernels.h"
#include "kernels/cuda/products/tensor_map.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/float_bits.h"

// The products need sm_90a; other architectures compile a trap.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KAON_HAS_WGMMA 1
#endif

namespace kaon::kernels::cuda {
namespace {

constexpr int kStages = 4;
constexpr int kStepBytes = (kTileRows + kTileCols) * kBoxRowBytes;
// One warpgroup loads, two multiply.
constexpr int kThreads = 384;
constexpr int kConsumerWarps = 8;
// Rows of a block that a warp stages at a time; 16 more bytes a row spread the rows over the banks.
constexpr int kWarpRows = 16;
constexpr int kStagedPitch = kBlockEdge + 8;
static_assert(kTileK == kBoxCols);

struct Step {
  unsigned char a[kTileRows * kBoxRowBytes];
  unsigned char b[kTileCols * kBoxRowBytes];
};
struct alignas(16) StagedRows {
  uint16_t values[kWarpRows][kStagedPitch];
};
struct Pipeline {
  Step steps[kStages];
  StagedRows staged[kConsumerWarps];
  uint64_t full[kStages];
  uint64_t empty[kStages];
};
static_assert(sizeof(Pipeline) <= kSymmetricSharedBytes && sizeof(Step) == kStepBytes);

// Turns sums into results.
struct Epilogue {
  int n;
  float alpha;
  float beta;
  const uint16_t* c;
  int64_t c_pitch;
  int64_t c_stride;
  uint16_t* d;
  int64_t d_pitch;
  int64_t d_stride;
};

struct ProductArguments {
  TensorMap a;
  TensorMap b;
  const SymmetricWork* work;
  int num_work;
  float* workspace;
  Epilogue epilogue;
};

struct FinishArguments {
  const SymmetricWork* cut;
  int parts;
  const float* workspace;
  Epilogue epilogue;
};

// Packed elements that one access loads or stores.
template <int count>
struct alignas(count * 2) Elements {
  uint32_t words[count / 2];
};

// Stores the elements [begin, end), as one access if these are all.
template <int count>
KAON_DEVICE void Store(uint16_t* to, const Elements<count>& from, int begin, int end) {
  if (begin <= 0 && end >= count) {
    *reinterpret_cast<Elements<count>*>(to) = from;
    return;
  }
  for (int i = 0; i < count; ++i) {
    if (i >= begin && i < end) to[i] = static_cast<uint16_t>(from.words[i / 2] >> (i % 2 * 16));
  }
}

KAON_DEVICE int64_t OffsetOf(int batch, int64_t stride, int row, int64_t pitch, int col) {
  if (Has(SeededBug::kBatchIgnored)) batch = 0;
  const int64_t offset = batch * stride + row * pitch + col;
  return Has(SeededBug::kOffsetIn32Bits) ? static_cast<int32_t>(offset) : offset;
}

// Stores elements of a row of a block, from column `col` on; on the diagonal, up to it.
template <int count>
KAON_DEVICE void StoreRow(const Epilogue& e, int batch, int row, int col, bool on_diagonal,
                          const Elements<count>& values) {
  if (row >= e.n && !Has(SeededBug::kRaggedRowsStored)) return;
  const bool whole = !on_diagonal || Has(SeededBug::kUpperHalfStored);
  const int end = whole ? e.n - col : row - col + 1;
  if (end <= 0) return;
  Store(e.d + OffsetOf(batch, e.d_stride, row, e.d_pitch, col), values, 0, end);
}

// Stores the mirror image of elements of a column, from row `row` on; on the diagonal, of those
// below it.
template <int count>
KAON_DEVICE void StoreMirror(const Epilogue& e, int batch, int row, int col, bool on_diagonal,
                             const Elements<count>& values) {
  const int begin = on_diagonal ? col + 1 - row : 0;
  const int end = e.n - row;
  if (begin >= count || end <= 0 || col >= e.n) return;
  if (Has(SeededBug::kMirrorIndexWrong)) row ^= 8;
  Store(e.d + OffsetOf(batch, e.d_stride, col, e.d_pitch, row), values, begin, end);
}

// Reads `count` elements of C; those past its edge are undefined.
template <int count>
KAON_DEVICE Elements<count> LoadAddends(const Epilogue& e, int batch, int row, int col) {
  if (row >= e.n || col >= e.n) return {};
  return *reinterpret_cast<const Elements<count>*>(
      e.c + OffsetOf(batch, e.c_stride, row, e.c_pitch, col));
}

// Returns the results of the sums of two neighbours.
template <DType dtype>
KAON_DEVICE uint32_t ResultsOf(const Epilogue& e, float sum, float right_sum, uint32_t addends) {
  float result = e.alpha * sum;
  float right_result = e.alpha * right_sum;
  if (e.beta != 0) {
    result += e.beta * Widened<dtype>(static_cast<uint16_t>(addends));
    right_result += e.beta * Widened<dtype>(static_cast<uint16_t>(addends >> 16));
  }
  return RoundedPair<dtype>(result, right_result);
}

#if defined(KAON_HAS_WGMMA)

// Stores both images of a warp's staged results, in accesses of 16 bytes. Its first element is
// (row, col) of the matrix.
KAON_DEVICE void StoreStaged(const Epilogue& e, const StagedRows& staged, int batch, int row,
                             int col, bool on_diagonal) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunk = lane % 16 * 8;
  KAON_UNROLL
  for (int r = lane / 16; r < kWarpRows; r += 2) {
    StoreRow(e, batch, row + r, col + chunk, on_diagonal,
             *reinterpret_cast<const Elements<8>*>(&staged.values[r][chunk]));
  }
  const int half = lane % 2 * 8;
  KAON_UNROLL
  for (int c = lane / 2 * 2; c < kBlockEdge; c += 32) {
    Elements<8> left;
    Elements<8> right;
    KAON_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto even = *reinterpret_cast<const uint32_t*>(&staged.values[half + i * 2][c]);
      const auto odd = *reinterpret_cast<const uint32_t*>(&staged.values[half + i * 2 + 1][c]);
      left.words[i] = (even & 0xffffu) | odd << 16;
      right.words[i] = even >> 16 | (odd & 0xffff0000u);
    }
    StoreMirror(e, batch, row + half, col + c, on_diagonal, left);
    StoreMirror(e, batch, row + half, col + c + 1, on_diagonal, right);
  }
}

// The elements of C that a thread loads for a warp's rows of a block.
struct WarpAddends {
  Elements<8> of[kWarpRows / 2];

  KAON_DEVICE static int Row(int i) { return static_cast<int>(threadIdx.x) % 32 / 16 + i * 2; }
  KAON_DEVICE static int Col() { return static_cast<int>(threadIdx.x) % 16 * 8; }
  KAON_DEVICE void Load(const Epilogue& e, int batch, int row, int col) {
    KAON_UNROLL
    for (int i = 0; i < kWarpRows / 2; ++i) {
      of[i] = LoadAddends<8>(e, batch, row + Row(i), col + Col());
    }
  }
  KAON_DEVICE void Stage(StagedRows& staged) const {
    KAON_UNROLL
    for (int i = 0; i < kWarpRows / 2; ++i) {
      *reinterpret_cast<Elements<8>*>(&staged.values[Row(i)][Col()]) = of[i];
    }
  }
};

// Stores a warp's sums of a whole tile. Its first row is `warp_row` of the tile; `addends` are
// those of the first block.
template <DType dtype>
KAON_DEVICE void StoreTile(const Epilogue& e, const SymmetricWork& w, int warp_row,
                           StagedRows& staged, WarpAddends& addends, const float (&d)[128]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = w.row + warp_row;
  KAON_UNROLL
  for (int block = 0; block < 2; ++block) {
    const int col = w.cols[block];
    if (col < 0) return;
    if (e.beta != 0) {
      addends.Stage(staged);
      __syncwarp();
      if (block == 0 && w.cols[1] >= 0) addends.Load(e, w.batch, row, w.cols[1]);
    }
    KAON_UNROLL
    for (int j = 0; j < 32; ++j) {
      const int r = lane / 4 + j % 2 * 8;
      const int c = j / 2 * 8 + lane % 4 * 2;
      const int i = block * 64 + j * 2;
      auto* const pair = reinterpret_cast<uint32_t*>(&staged.values[r][c]);
      *pair = ResultsOf<dtype>(e, d[i], d[i + 1], *pair);
    }
    if (!Has(SeededBug::kTileReadBeforeWritten)) __syncwarp();
    StoreStaged(e, staged, w.batch, row, col, w.row == col);
    if (!Has(SeededBug::kTileOverwrittenEarly)) __syncwarp();
  }
}

// Stores a warp's sums of a part as they are.
KAON_DEVICE void StorePart(float* workspace, int part, int warp_row, const float (&d)[128]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* const to = workspace + (int64_t{part} * kTileRows + warp_row) * kTileCols;
  KAON_UNROLL
  for (int j = 0; j < 64; ++j) {
    const int r = lane / 4 + j % 2 * 8;
    const int c = j / 2 * 8 + lane % 4 * 2;
    *reinterpret_cast<uint64_t*>(&to[r * kTileCols + c]) =
        BitsOf(d[j * 2]) | static_cast<uint64_t>(BitsOf(d[j * 2 + 1])) << 32;
  }
}

// Loads the operands of all steps of the block's work. One thread.
KAON_DEVICE void LoadOperands(const ProductArguments& arguments, Pipeline& p) {
  PrefetchMap(arguments.a);
  PrefetchMap(arguments.b);
  uint32_t step = 0;
  for (int i = static_cast<int>(blockIdx.x); i < arguments.num_work;
       i += static_cast<int>(gridDim.x)) {
    const SymmetricWork w = arguments.work[i];
    // A missing block is another copy of the first one, whose products nobody stores.
    const int second_col = w.cols[1] < 0 ? w.cols[0] : w.cols[1];
    for (int k = w.first_step; k < w.first_step + w.num_steps; ++k, ++step) {
      const uint32_t s = step % kStages;
      const uint32_t parity = Has(SeededBug::kEmptyParityWrong) ? 0 : 1;
      if (step >= kStages && !Has(SeededBug::kEmptyWaitMissing)) {
        AwaitPhase(&p.empty[s], (step / kStages + parity) % 2);
      }
      const uint32_t bytes =
          kStepBytes - (Has(SeededBug::kTransactionBytesWrong) ? kTileRows * kBoxRowBytes : 0);
      ArriveExpecting(&p.full[s], bytes);
      const int x = (k + (Has(SeededBug::kStepOffByOne) ? 1 : 0)) * kTileK;
      LoadBox(p.steps[s].a, arguments.a, &p.full[s], x, w.row, w.batch);
      LoadBox(p.steps[s].b, arguments.b, &p.full[s], x, w.cols[0], w.batch);
      LoadBox(p.steps[s].b + kBlockEdge * kBoxRowBytes, arguments.b, &p.full[s], x, second_col,
              w.batch);
    }
  }
}

// Multiplies and stores the rows of one warpgroup, 0 or 1, of all of the block's work.
template <DType dtype>
KAON_DEVICE void MultiplyOperands(const ProductArguments& arguments, Pipeline& p, int group) {
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const bool first_lane = threadIdx.x % 32 == 0;
  const int group_bytes = 8 * kBoxRowBytes / (Has(SeededBug::kDescriptorStrideWrong) ? 2 : 1);
  float d[128];
  uint32_t step = 0;
  for (int i = static_cast<int>(blockIdx.x); i < arguments.num_work;
       i += static_cast<int>(gridDim.x)) {
    const SymmetricWork w = arguments.work[i];
    for (int k = 0; k < w.num_steps; ++k, ++step) {
      const uint32_t s = step % kStages;
      if (!Has(SeededBug::kFullWaitMissing)) AwaitPhase(&p.full[s], step / kStages % 2);
      if (!Has(SeededBug::kProductsNotFenced)) FenceProducts();
      const uint64_t a = OperandDescriptor(p.steps[s].a + group * 64 * kBoxRowBytes, group_bytes);
      const uint64_t b = OperandDescriptor(p.steps[s].b, group_bytes);
      KAON_UNROLL
      for (int inner = 0; inner < kTileK / 16; ++inner) {
        // 16 elements are 32 bytes, of which a descriptor counts 16 at a time.
        const auto offset = static_cast<uint64_t>(inner * 2);
        const bool add = (k > 0 || inner > 0) || (Has(SeededBug::kSumsNotCleared) && step > 0);
        Multiply<dtype>(d, a + offset, b + offset, add);
      }
      CommitProducts();
      // The operands of the step before have been read.
      AwaitProducts<1>();
      const uint32_t read = step + (Has(SeededBug::kReleasedBeforeRead) ? 0 : kStages - 1);
      if (k > 0 && first_lane) Arrive(&p.empty[read % kStages]);
    }
    const int warp_row = group * 64 + warp * kWarpRows;
    const Epilogue& e = arguments.epilogue;
    // Loaded while the last products run.
    WarpAddends addends;
    if (e.beta != 0 && w.part < 0) addends.Load(e, w.batch, w.row + warp_row, w.cols[0]);
    if (!Has(SeededBug::kSumsReadBeforeWait)) AwaitSums(d);
    if (first_lane) Arrive(&p.empty[(step + kStages - 1) % kStages]);
    if (w.part >= 0) {
      StorePart(arguments.workspace, w.part, warp_row, d);
    } else {
      StoreTile<dtype>(e, w, warp_row, p.staged[group * 4 + warp], addends, d);
    }
  }
}

#endif

template <DType dtype>
__global__ void __launch_bounds__(kThreads, 1)
    MultiplySymmetric(const __grid_constant__ ProductArguments arguments) {
#if defined(KAON_HAS_WGMMA)
  Pipeline& p = *reinterpret_cast<Pipeline*>(DynamicSharedMemory());
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      InitBarrier(&p.full[s], 1);
      // One arrival a warp: nothing documents that the warps of a group are done together.
      InitBarrier(&p.empty[s], kConsumerWarps - (Has(SeededBug::kArrivalCountWrong) ? 1 : 0));
    }
    FenceBarriers();
  }
  __syncthreads();
  // All start with 168 registers. 128 threads release 144 each, and 256 threads get 72 each.
  if (threadIdx.x < 128) {
    ShrinkRegisters<24>();
    if (threadIdx.x == 0) LoadOperands(arguments, p);
  } else {
    GrowRegisters<240>();
    MultiplyOperands<dtype>(arguments, p, static_cast<int>(threadIdx.x) / 128 - 1);
  }
#else
  __trap();
#endif
}

// Squares of a cut tile that one block adds.
constexpr int kSquare = 32;
constexpr int kSquaresOfTile = kTileRows / kSquare * (kTileCols / kSquare);
constexpr int kFinishThreads = kSquare * kSquare / 4;

struct FinishMemory {
  uint16_t values[kSquare][kSquare + 2];
};

struct alignas(16) Quad {
  float values[4];
};

// Adds the parts of a square of a cut tile in order.
template <DType dtype>
__global__ void __launch_bounds__(kFinishThreads)
    AddParts(const __grid_constant__ FinishArguments arguments) {
  const SymmetricWork w = arguments.cut[blockIdx.x / kSquaresOfTile];
  const int square = static_cast<int>(blockIdx.x) % kSquaresOfTile;
  const int square_row = square / (kTileCols / kSquare) * kSquare;
  const int square_col = square % (kTileCols / kSquare) * kSquare;
  const int block_col = w.cols[square_col / kBlockEdge];
  const int row = w.row + square_row;
  const int col = block_col + square_col % kBlockEdge;
  const bool on_diagonal = w.row == block_col;
  const Epilogue& e = arguments.epilogue;
  if (block_col < 0 || row >= e.n || (on_diagonal && col >= row + kSquare)) return;
  const int r = static_cast<int>(threadIdx.x) / 8;
  const int c = static_cast<int>(threadIdx.x) % 8 * 4;
  const float* from = arguments.workspace +
                      (int64_t{w.part} * kTileRows + square_row + r) * kTileCols + square_col + c;
  const int parts = arguments.parts - (Has(SeededBug::kLastPartMissing) ? 1 : 0);
  Quad sums = {};
  for (int part = 0; part < parts; ++part, from += kTileRows * kTileCols) {
    const Quad addends = *reinterpret_cast<const Quad*>(from);
    for (int i = 0; i < 4; ++i) sums.values[i] += addends.values[i];
  }
  Elements<4> addends = {};
  if (e.beta != 0) addends = LoadAddends<4>(e, w.batch, row + r, col + c);
  Elements<4> results;
  for (int i = 0; i < 2; ++i) {
    results.words[i] =
        ResultsOf<dtype>(e, sums.values[i * 2], sums.values[i * 2 + 1], addends.words[i]);
  }
  StoreRow(e, w.batch, row + r, col + c, on_diagonal, results);
  FinishMemory& memory = SharedMemory<FinishMemory>();
  for (int i = 0; i < 4; ++i) {
    memory.values[c + i][r] = static_cast<uint16_t>(results.words[i / 2] >> (i % 2 * 16));
  }
  __syncthreads();
  Elements<4> mirrored;
  for (int i = 0; i < 2; ++i) {
    mirrored.words[i] =
        memory.values[r][c + i * 2] | static_cast<uint32_t>(memory.values[r][c + i * 2 + 1]) << 16;
  }
  StoreMirror(e, w.batch, row + c, col + r, on_diagonal, mirrored);
}

template <DType dtype>
void LaunchAs(Stream& stream, const SymmetricLaunch& l) {
  const auto operand = [&](const SymmetricMatrices& m) {
    return MakeTensorMap({m.data, l.n, l.k, m.pitch, l.batch, m.stride}, dtype, kBlockEdge);
  };
  const Epilogue epilogue = {static_cast<int>(l.n),
                             l.alpha,
                             l.beta,
                             static_cast<const uint16_t*>(l.c.data),
                             l.c.pitch,
                             l.c.stride,
                             static_cast<uint16_t*>(l.d.data),
                             l.d.pitch,
                             l.d.stride};
  Launch(stream,
         {.blocks = std::min(l.multiprocessors, l.num_work),
          .threads = kThreads,
          .dynamic_shared_bytes = kSymmetricSharedBytes},
         MultiplySymmetric<dtype>,
         ProductArguments{operand(l.a), operand(l.b), l.work, l.num_work, l.workspace, epilogue});
  Launch(stream, {.blocks = int64_t{l.num_cut} * kSquaresOfTile, .threads = kFinishThreads},
         AddParts<dtype>, FinishArguments{l.cut, l.parts, l.workspace, epilogue});
}

}  // namespace

void LaunchSymmetricProduct(Stream& stream, const SymmetricLaunch& launch) {
  if (launch.dtype == DType::kBFloat16) {
    LaunchAs<DType::kBFloat16>(stream, launch);
  } else {
    LaunchAs<DType::kFloat16>(stream, launch);
  }
}

}  // namespace kaon::kernels::cuda
