// The element-wise parts of Muon on a device: momentum and direction, the normalized matrix that
// Newton-Schulz starts with, and the weights after it. One launch covers a batch. Values of one
// step are in device memory, so a captured graph can be launched with new ones. All pointers are
// device memory of the caller. One thread at a time per stream.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_MUON_ELEMENTS_H_
#define KAON_KERNELS_CUDA_ELEMENTS_MUON_ELEMENTS_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/elements/update_facts.h"
#include "kernels/dtype.h"
#include "kernels/newton_schulz_config.h"
#include "kernels/optimizer_rule.h"
#include "kernels/orthogonalize/normalization.h"
#include "kernels/rules/muon_elements.h"

namespace kaon::kernels::cuda {

// Facts about one block of kNormBlockElements (kernels/reduce/norm_order.h) of a direction.
struct NormBlock {
  double sum_squares;
  // Largest magnitude without NaN.
  uint32_t largest_bits;
  uint32_t unused;
};

// Returns the number of NormBlocks of so many elements.
int64_t NumNormBlocks(int64_t num_elements);

// The momentum of one parameter, formulas [M1] and [M2].
struct MomentumStep {
  MuonMomentumScalars scalars;
  const void* grad;
  DType grad_dtype;
  // Read for `l2` decay only.
  const float* param;
  // The momentum as stored by state_codec.h.
  void* state;
  // False: the state stays as it is (UpdatePart::kWeights).
  bool writes_state;
  // TensorDigestKey of the state (kernels/reduce/digest_key.h).
  uint64_t state_key;
  // Receives the direction; null if only the state is stepped (UpdatePart::kState).
  float* direction;
  // Receives NumNormBlocks facts about the direction; not used without one.
  NormBlock* norms;
  // Receives slots_digest.
  UpdateFacts* facts;
  int64_t num_elements;
  // Sum of NumNormBlocks over the steps before this one.
  int64_t first_block;
};

struct MomentumBatch {
  // `count` steps in device memory, and NumNormBlocks over all of them.
  const MomentumStep* steps;
  int64_t count;
  int64_t num_blocks;
  // Storage of all states.
  StateDType state_dtype;
};

void StepMomentum(Stream& stream, const MomentumBatch& batch);

// Facts about one matrix.
struct MatrixFacts {
  // Written by NormalizeMatrices. A matrix whose absolute_max is 0 is orthogonalized to exactly +0.
  double absolute_max;
  float scale;
  float norm;
  // Written by StepMatrices: sum of squares of the orthogonalized update, for
  // UpdateFault::kTooLarge. Summed by tiles in a fixed order, which is not the CPU's.
  double sum_squares;
  // Facts about the new weights. The caller zeroes both before StepMatrices.
  uint64_t weights_digest;
  uint32_t largest_weight_bits;
  uint32_t unused;
};

// One matrix of a parameter: a MatrixBlock of matrix_layout.h.
struct MuonMatrix {
  // The parameter's arrays. The direction may be new_param: it is read before new_param is written.
  // new_param may be param.
  const float* direction;
  const float* param;
  float* new_param;
  // Row i starts at element row_elements[i] of the parameter, or, if that is null, at
  // offset + i * row_stride.
  const int64_t* row_elements;
  int64_t offset;
  int64_t row_stride;
  // Norms of the matrix, row by row: NumNormBlocks(rows * cols) facts. DescribeMatrices writes
  // them. A matrix of contiguous elements can use those of its direction instead. Its offset must
  // then be a multiple of kNormBlockElements, and so must its size unless it ends the parameter.
  NormBlock* norms;
  // Matrix X (r, c), r = min(rows, cols), c = max(rows, cols), transposed if rows > cols.
  // NormalizeMatrices writes `normalized`; StepMatrices reads `orthogonal`. 16-byte aligned.
  void* normalized;
  const void* orthogonal;
  MuonWeightScalars scalars;
  // TensorDigestKey of the weights.
  uint64_t weights_key;
};

// Equal matrices.
struct MuonMatrices {
  // `count` matrices and their facts, in device memory.
  const MuonMatrix* matrices;
  MatrixFacts* facts;
  int64_t count;
  int64_t rows;
  int64_t cols;
  // Elements from one row of X to the next: at least c, and a multiple of 8. Elements from c on are
  // neither read nor written.
  int64_t pitch;
  // Type of the elements of X.
  NsDType dtype;
};

// Writes the norms of all matrices.
void DescribeMatrices(Stream& stream, const MuonMatrices& batch);

// normalized <- (direction / scale) / norm, rounded to `dtype` (rule [N5]).
void NormalizeMatrices(Stream& stream, const MuonMatrices& batch,
                       const NormalizationOptions& options);

// Returns the number of doubles of `tile_squares` for StepMatrices.
int64_t NumTileSquares(const MuonMatrices& batch);

// new_param <- the update of param by `orthogonal` (formula [M5]). `tile_squares` is scratch.
void StepMatrices(Stream& stream, const MuonMatrices& batch, double* tile_squares);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_MUON_ELEMENTS_H_
