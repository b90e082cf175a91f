#include <glog/logging.h>

#include "kernels/cuda/products/tensor_map.h"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif

namespace kaon::kernels::cuda {
namespace {

void CheckAligned(const MatrixBatch& m, int box_rows) {
  CHECK(reinterpret_cast<uintptr_t>(m.data) % 16 == 0 && m.pitch % 8 == 0 && m.stride % 8 == 0)
      << "matrices at " << m.data << ", row pitch " << m.pitch << ", stride " << m.stride
      << ": 16-byte boundaries are needed";
  CHECK(m.rows > 0 && m.cols > 0 && m.cols <= m.pitch && m.batch > 0 && box_rows > 0 &&
        box_rows <= 256 && (m.batch == 1 || m.stride > 0))
      << m.batch << " matrices of " << m.rows << " x " << m.cols << ", row pitch " << m.pitch;
}

#if defined(__CUDACC__)

// Found at run time, so that nothing links against the driver.
decltype(&cuTensorMapEncodeTiled) FindEncoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
  CHECK(error == cudaSuccess && found == cudaDriverEntryPointSuccess)
      << "the driver lacks cuTensorMapEncodeTiled: " << cudaGetErrorString(error);
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

}  // namespace

TensorMap MakeTensorMap(const MatrixBatch& m, DType dtype, int box_rows) {
  CheckAligned(m, box_rows);
  static const auto encode = FindEncoder();
  TensorMap map;
  const cuuint64_t stride = static_cast<cuuint64_t>(m.batch == 1 ? m.rows * m.pitch : m.stride);
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(m.cols), static_cast<cuuint64_t>(m.rows),
                              static_cast<cuuint64_t>(m.batch)};
  const cuuint64_t pitches[] = {static_cast<cuuint64_t>(m.pitch) * 2, stride * 2};
  const cuuint32_t box[] = {kBoxCols, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  const CUtensorMapDataType type = dtype == DType::kBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                             : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const CUresult result =
      encode(&map, type, 3, m.data, sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(result == CUDA_SUCCESS) << "cuTensorMapEncodeTiled: error " << static_cast<int>(result);
  return map;
}

#else

}  // namespace

TensorMap MakeTensorMap(const MatrixBatch& m, DType, int box_rows) {
  CheckAligned(m, box_rows);
  return {m, box_rows};
}

#endif

}  // namespace kaon::kernels::cuda
