// Access to the elements of a matrix of a parameter. Device code; pure functions.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_MUON_MATRIX_H_
#define KAON_KERNELS_CUDA_ELEMENTS_MUON_MATRIX_H_

#include <cstdint>

#include "kernels/cuda/elements/four.h"
#include "kernels/cuda/elements/muon_elements.h"
#include "kernels/cuda/launch.h"

namespace kaon::kernels::cuda {

// Returns the element of the parameter at which a row starts.
KAON_DEVICE int64_t RowStart(const MuonMatrix& matrix, int64_t row) {
  return matrix.row_elements != nullptr ? matrix.row_elements[row]
                                        : matrix.offset + row * matrix.row_stride;
}

// Reads up to four neighbours of a row.
KAON_DEVICE Four<float> LoadOfRow(const float* from, int count) {
  return LoadFour(from, count, IsVectorAligned(from));
}

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_MUON_MATRIX_H_
